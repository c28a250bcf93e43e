"""Programs that run inside the box of a live world, with the Python of the box: the standard library only, nothing of Headrace."""
