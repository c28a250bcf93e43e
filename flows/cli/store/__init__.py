"""Commands on what a store holds."""
