"""The runtime of flows: server, locks, progress, events, executors."""
