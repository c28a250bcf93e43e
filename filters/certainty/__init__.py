"""A policy's measured certainty of a task, and where the task goes after a probe."""
