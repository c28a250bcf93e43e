"""Worlds, tasks and trajectories: everything that is executed."""
