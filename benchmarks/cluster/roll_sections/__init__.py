"""ROLL's real classes over our worlds."""
