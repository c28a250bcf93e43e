"""The frames of a run on disk, in batches, and joins over them."""
