"""What engines cost in months: the ledger of a store, and the calls that are counted in it."""
