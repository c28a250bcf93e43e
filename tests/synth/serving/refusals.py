"""Errors of the protocol in tests: the SDK's client raises them in groups of groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from mcp import MCPError


@contextmanager
def refused(pattern: str) -> Iterator[None]:
    """The block must end in an error of the protocol whose message has this pattern."""
    try:
        yield
    except BaseException as raised:
        error = raised
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if not isinstance(error, MCPError):
            raise
        assert re.search(pattern, error.error.message), error.error.message
    else:
        raise AssertionError(f"nothing was refused with {pattern!r}")
