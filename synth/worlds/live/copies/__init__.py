"""A running copy of a live world's server: its box, its session, its private folder, snapshots, and the pool of warm ones."""
