"""Backends that start a stage through a scheduler: Slurm, and Kubernetes with KubeRay."""
