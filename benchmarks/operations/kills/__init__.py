"""kill -9 at seeded moments, of every process that takes part in a run."""
