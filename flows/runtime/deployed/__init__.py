"""Runs of deployments: their processes, the marks of dead ones, the automations that watch them."""
