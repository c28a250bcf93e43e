"""Fixtures of rendered stages."""

from tests.train.backends.stages import policy, released

__all__ = ["policy", "released"]
