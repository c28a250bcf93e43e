"""Worlds whose tools are those of a cluster: skeletons, signatures, and specs that a language model writes."""
