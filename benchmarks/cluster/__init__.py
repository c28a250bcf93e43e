"""`make bench cluster`: training on clusters and over queues. `__main__.py` lists the figures; each other file measures one thing."""
