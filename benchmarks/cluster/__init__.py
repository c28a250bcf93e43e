"""verl's and ROLL's real classes over our worlds, and the cluster's queue: `make bench cluster`."""
