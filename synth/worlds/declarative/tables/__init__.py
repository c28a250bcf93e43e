"""Tables of the user's own as the rows of a world."""
