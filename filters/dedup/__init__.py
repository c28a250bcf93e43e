"""Exact and near duplicates, within a log and against earlier logs."""
