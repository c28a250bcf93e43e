"""The withdrawal of a source: what would go, and its going."""
