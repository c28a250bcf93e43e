"""The two kinds of failure that a person is told about in one line; everything else is a bug and shows its traceback."""


class HeadraceError(Exception):
    """Something went wrong that is not the input's fault: a full disk, a lost lock, a stage that died. Exit code 1."""


class BadInput(HeadraceError):
    """What was given cannot be used; nothing was written. The message names the file, row or key, and what to do. Exit code 2."""
