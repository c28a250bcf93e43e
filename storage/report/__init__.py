"""Charts and report.html, made from the store alone."""
