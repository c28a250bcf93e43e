"""Worlds compiled from a YAML description of a business: what it holds, what can be done to it, and what it forbids (`docs/worlds.md`)."""
