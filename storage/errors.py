"""The kinds of failure that are reported in one line. Any other exception is a bug and shows its traceback.

Messages may quote servers and files, so each is made safe to show when it is raised: no control characters, no known secrets.
"""

from storage.outside.known_secrets import shown


class HeadraceError(Exception):
    """A failure that the input did not cause: a full disk, a lost lock, a stage that died. Exit code 1."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(shown(each) if isinstance(each, str) else each for each in args))


class OutOfReach(HeadraceError):
    """Something outside does not answer, and may answer later: an object store, a cluster, a model server. What was done is kept."""


class BadInput(HeadraceError):
    """The input cannot be used; nothing was written. The message names the file, row or key, and what to do. Exit code 2."""


class OtherVersion(BadInput):
    """The store is whole, but has another schema version than this Headrace."""
