"""Releases: frozen selections that training reads, and their exports with a dataset card."""
