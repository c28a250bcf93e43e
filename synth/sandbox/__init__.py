"""Programs that nobody vouches for, run where they can do no harm: `pick()` a provider, give it to a `Sandbox`, `run`.

Docker where an engine answers and has the image, else bubblewrap, else none: whoever offers a code tool then leaves it out and says so.
"""

from __future__ import annotations

from synth.sandbox.base import BoxDied, Limits, Provider, Result, SandboxError
from synth.sandbox.bubblewrap import Bubblewrap
from synth.sandbox.containers import Docker
from synth.sandbox.sandbox import Sandbox
from synth.sandbox.session import Session, State

__all__ = [
    "BoxDied",
    "Bubblewrap",
    "Docker",
    "Limits",
    "Provider",
    "Result",
    "Sandbox",
    "SandboxError",
    "Session",
    "State",
    "available",
    "pick",
]


def available() -> dict[str, str]:
    """By provider, what it lacks on this machine and how to get it; empty text where it works. Tries each one."""
    return {provider.name: provider.missing() for provider in (Docker(), Bubblewrap())}


def pick() -> Provider | None:
    """The provider to use here, or None."""
    for provider in (Docker(), Bubblewrap()):
        if not provider.missing():
            return provider
    return None
