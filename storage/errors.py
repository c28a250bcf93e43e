"""The two kinds of failure that are reported in one line. Any other exception is a bug and shows its traceback."""


class HeadraceError(Exception):
    """A failure that the input did not cause: a full disk, a lost lock, a stage that died. Exit code 1."""


class BadInput(HeadraceError):
    """The input cannot be used; nothing was written. The message names the file, row or key, and what to do. Exit code 2."""
