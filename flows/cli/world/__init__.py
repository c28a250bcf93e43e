"""Commands about worlds: their specs, and how requests are read in them."""
