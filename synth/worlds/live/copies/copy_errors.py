"""What can go wrong with a running server, by whose fault: none of it is the policy's."""

from __future__ import annotations

from storage.errors import HeadraceError


class ServerFailed(HeadraceError):
    """A live server did not do its part. A conversation in which it happens is an infrastructure failure, never the policy's."""


class ServerDied(ServerFailed):
    """The server's process ended, or closed its connection; the message has its exit code and the end of its stderr."""


class ServerHung(ServerFailed):
    """The server did not answer in time."""


class ServerSpoke(ServerFailed):
    """The server sent what is no answer: too large, or not of the protocol."""


class CannotRestore(ServerFailed):
    """The server cannot get back to an earlier state."""
