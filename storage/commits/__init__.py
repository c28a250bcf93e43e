"""What belongs to a commit: its check, and its line in the log."""
