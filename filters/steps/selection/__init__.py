"""Steps that look at all rows left: from a pool to a shortlist to admitted tasks."""
