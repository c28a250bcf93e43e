"""A synthesis run: its configuration, its rounds, and what steers them."""
