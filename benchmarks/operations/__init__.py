"""Sections of `make bench operations`."""
