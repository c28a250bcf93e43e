"""What flows run on: server, locks, progress, events, executors."""
