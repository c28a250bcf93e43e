"""Labelled requests: files of them, and weights that are fitted on them."""
