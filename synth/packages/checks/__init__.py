"""Checks of a package by its ecosystem's own tool: the expert scores 1 and an idle policy 0, for every task."""
