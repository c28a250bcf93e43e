"""Terminal input and output of the `headrace` command: results on stdout, failures as one line on stderr and an exit code.

Exit codes: 0 done, 1 failed, 2 unusable input (nothing was written), 130 interrupted. `--debug` shows the traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text
from typer._click.exceptions import ClickException, NoArgsIsHelpError
from typer.core import TyperGroup

from storage.errors import BadInput, HeadraceError
from storage.outside.known_secrets import shown


class SafeConsole(Console):
    """A console that shows no control character and no known secret, whoever wrote the text: a server, a file, a user."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(shown(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text) and (clean := shown(renderable.plain)) != renderable.plain:
            renderable = Text(clean, renderable.style, justify=renderable.justify, overflow=renderable.overflow, end=renderable.end)
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=shown(segment.text))


out = SafeConsole(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 120)
err = SafeConsole(stderr=True, highlight=False, emoji=False)


@contextlib.contextmanager
def handle_errors(debug: bool) -> Iterator[None]:
    """Turn exceptions into one line on stderr and an exit code."""
    if debug:
        os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "INFO"
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt:
        _fail("interrupted; run the same command again to continue", 130, debug)
    except BadInput as error:
        _fail(str(error), 2, debug)
    except HeadraceError as error:
        _fail(str(error), 1, debug)
    except Exception as error:
        from storage.files import is_disk_full

        if is_disk_full(error):
            _fail("no space left on the disk; committed data are intact. Free space, then run the same command again", 1, debug)
        _fail(f"unexpected {type(error).__name__}: {error} (--debug shows the traceback)", 1, debug)


class OneLineErrors(TyperGroup):
    """The root group of commands. A wrong option or argument is one line on stderr, as every other error, instead of typer's box."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        def run() -> Any:
            return super(OneLineErrors, self).main(args, prog_name, complete_var, False, windows_expand_args, **extra)

        if not standalone_mode:
            return run()
        try:
            code = run()
        except NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except ClickException as error:
            context = getattr(error, "ctx", None)
            command = context.command_path if context is not None else "headrace"
            message = error.format_message().replace("Value error, ", "").rstrip(".")
            _print_error(f"{message}{'' if message.endswith('?') else '.'} See `{command} --help`")
            sys.exit(error.exit_code)
        except typer.Abort:
            _print_error("stopped")
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)


def print_text(text: str, style: str = "") -> None:
    """Print text on stdout without markup and wrapping."""
    out.print(text, style=style, markup=False, soft_wrap=True)


def read_lines(prompt: str, words: Sequence[str]) -> Iterator[str]:
    """Yield lines from stdin until its end or Ctrl-D. A terminal has a prompt, line editing and completion of `words` (TAB).

    Raises:
        BadInput: a line is not UTF-8.
        KeyboardInterrupt: Ctrl-C at the prompt.
    """
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        _enable_completion(words)
    while True:
        try:
            yield input(prompt if is_terminal else "")
        except EOFError:
            return
        except UnicodeDecodeError:
            raise BadInput("the text on stdin is not UTF-8 text") from None


def _enable_completion(words: Sequence[str]) -> None:
    """Enable completion of `words` if this Python has readline."""
    try:
        import readline
    except ImportError:
        return

    def complete(text: str, state: int) -> str | None:
        matches = [word for word in words if word.startswith(text)]
        return matches[state] if state < len(matches) else None

    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")


def _fail(message: str, code: int, debug: bool) -> None:
    if debug:
        sys.stderr.write(shown(traceback.format_exc()))
    _print_error(message)
    raise typer.Exit(code)


def _print_error(message: str) -> None:
    err.print(f"[bold red]headrace:[/bold red] {escape(' '.join(message.split()))}", soft_wrap=True)
