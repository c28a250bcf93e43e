"""Looks after the files of a store: checks, repairs, backs up, prunes and measures them."""
