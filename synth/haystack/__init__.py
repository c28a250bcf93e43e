"""Generates a log of raw user queries, and a file that says which rows are needles, duplicates and junk."""
