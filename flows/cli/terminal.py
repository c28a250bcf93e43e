"""How the `headrace` command speaks: results on stdout, failures as one line on stderr and an exit code.

0 done, 1 failed, 2 the input cannot be used (then nothing was written), 130 interrupted. `--debug` shows the traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence

import typer
from rich.console import Console
from rich.markup import escape

from storage.errors import BadInput, HeadraceError

out = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True, highlight=False, emoji=False)


@contextlib.contextmanager
def told(debug: bool) -> Iterator[None]:
    """Turns failures into one line and an exit code."""
    if debug:
        os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "INFO"
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt:
        _fail("interrupted; the same command continues where it was", 130, debug)
    except BadInput as error:
        _fail(str(error), 2, debug)
    except HeadraceError as error:
        _fail(str(error), 1, debug)
    except Exception as error:
        from storage.files import is_disk_full

        if is_disk_full(error):
            _fail("no space left on the disk; what was committed is intact. Free space, then run the same command again", 1, debug)
        _fail(f"unexpected {type(error).__name__}: {error} (with --debug: the traceback)", 1, debug)


def lines(prompt: str, words: Sequence[str]) -> Iterator[str]:
    """What a person types, with a prompt, line editing and completion of these words (TAB), until Ctrl-D; or the lines of a pipe.

    Raises:
        BadInput: a line is no UTF-8. KeyboardInterrupt: Ctrl-C at the prompt.
    """
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        _complete(words)
    while True:
        try:
            yield input(prompt if is_terminal else "")
        except EOFError:
            return
        except UnicodeDecodeError:
            raise BadInput("what was given on stdin is not UTF-8 text") from None


def _complete(words: Sequence[str]) -> None:
    """Where this Python has it."""
    try:
        import readline
    except ImportError:
        return

    def matching(text: str, state: int) -> str | None:
        found = [word for word in words if word.startswith(text)]
        return found[state] if state < len(found) else None

    readline.set_completer_delims(" ")
    readline.set_completer(matching)
    readline.parse_and_bind("tab: complete")


def _fail(message: str, code: int, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    err.print(f"[bold red]headrace:[/bold red] {escape(' '.join(message.split()))}", soft_wrap=True)
    raise typer.Exit(code)
