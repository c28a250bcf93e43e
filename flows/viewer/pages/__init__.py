"""The pages of the viewer, one a file."""
