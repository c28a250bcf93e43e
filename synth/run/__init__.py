"""A synthesis run: its configuration and its rounds."""
