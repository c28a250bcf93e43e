<<<<<<< HEAD
"""verl's and ROLL's real classes over our worlds, and the cluster's queue: `make bench cluster`."""
=======
"""`make bench cluster`: training on clusters and over queues. `__main__.py` lists the figures; each other file measures one thing."""
>>>>>>> cl-ipa
