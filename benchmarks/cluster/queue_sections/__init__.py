"""The queue of trajectories: its speed, its faults, and its simulation."""
