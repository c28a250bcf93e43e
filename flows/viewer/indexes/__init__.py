"""What lists search: indexes of the rows of a store, and how many rows each value of a column has."""
