"""Tombstones: which rows of a store were withdrawn, and what held them."""
