"""Asynchronous RL by single trajectories: ledger, journal, workers, reward service, queue."""
