"""Reading a whole log: a gate that sees every row, and the reader on what passes."""
