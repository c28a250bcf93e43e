"""What must not leave as it came: text of other programs, and secrets."""
