"""A seeded synthetic city with ten spatio-temporal tools."""
