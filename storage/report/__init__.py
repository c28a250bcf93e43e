"""Charts and report.html, made from the store alone."""

VIEWER_PORT = 8790
"""Where `headrace view` listens, if nothing else is said: ids of the report lead there."""
