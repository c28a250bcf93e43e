"""verl's real classes over our worlds."""
