"""Sections of `make bench cluster`."""
