"""A generated log of raw user queries, with what was planted in it."""
