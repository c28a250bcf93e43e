"""The taxonomy of queries: `tree.py` what it is, `label.py` the funnel's step, `evolve.py` how it grows with the queries of a store."""

from filters.taxonomy.label import by_vectors as by_vectors
from filters.taxonomy.label import step as step
from filters.taxonomy.tree import OTHER as OTHER
