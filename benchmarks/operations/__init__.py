"""Benchmarks of the deployments: what operators of an always-on installation notice."""
