"""The funnel from raw queries to tasks, one file a step, and what follows a probe: certainty, routing, splits."""
