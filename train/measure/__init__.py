"""Probes, evaluations, comparisons of policies, and the gate."""
