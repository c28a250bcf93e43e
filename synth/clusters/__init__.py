"""Tool catalogs, the dependency edges between tools, and the business clusters grown along them."""
