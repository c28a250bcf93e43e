"""Records, the store, lineage, releases, exports."""
