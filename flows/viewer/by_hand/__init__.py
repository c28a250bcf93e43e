"""What people say by hand in the viewer: who may write, and the form of a page."""
