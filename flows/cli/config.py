"""`headrace config`: every key of a configuration, what is wrong with a file, and where a file differs from the defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.shared import Debug
from flows.cli.terminal import told

app = typer.Typer(
    help="""The configuration: the reference of all its keys, and checks of a file.

A file names only what differs from the defaults; configs/sample.yaml shows the keys that are changed most. Without a subcommand the
reference is printed.

Examples:

  headrace config

  headrace config check configs/sample.yaml

  headrace config diff configs/ladder.yaml""",
)

_HEAD = """# Every key of a configuration, as YAML. Copy what you want to change into a file of your own, and pass it with --config.
# In [brackets]: the allowed values. The values are {whose}.
"""


@app.callback(invoke_without_command=True)
def config(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        show()


@app.command()
def show(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Show the values of this file instead of the defaults.")] = None,
    debug: Debug = False,
) -> None:
    """Print every key with its meaning, allowed values and default, as commented YAML that a configuration file may hold.

    With FILE the values are those that a run with it has, and a key that differs names its default.

    Examples:

      headrace config show

      headrace config show configs/ci.yaml

      headrace config show > full.yaml
    """
    with told(debug):
        from flows.config import Config, read
        from flows.config_reference import reference
        from flows.yaml_config import parse

        settings, written = (Config(), None) if file is None else (read(file), parse(file).values)
        _say(_HEAD.format(whose="the defaults" if file is None else f"those of {file}"))
        _say(reference(settings, written=written))


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A configuration file.")],
    debug: Debug = False,
) -> None:
    """Say everything that is wrong with a configuration file, a line each: unknown keys with the key meant, values with what is allowed.

    Nothing is read but the file and the worlds and wordings that it names; `headrace doctor --config FILE` tries its engines and cluster.
    Exit code 2 where something is wrong.

    Example: headrace config check configs/sample.yaml
    """
    with told(debug):
        from flows.config import read
        from flows.yaml_config import ConfigError

        try:
            read(file)
        except ConfigError as error:
            for problem in error.problems:
                _say(problem)
            _say(f"{file}: {len(error.problems)} problem{'s' * (len(error.problems) > 1)}; `headrace config` explains every key")
            raise typer.Exit(2) from None
        _say(f"{file}: valid")


@app.command()
def diff(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A configuration file.")],
    debug: Debug = False,
) -> None:
    """Print the keys of a file whose values differ from the defaults, as YAML, each with its default in a comment.

    Example: headrace config diff configs/ladder.yaml
    """
    with told(debug):
        from flows.config import read
        from flows.config_reference import differences
        from flows.yaml_config import parse

        _say(differences(read(file), written=parse(file).values) or f"# {file}: every value is the default")


def _say(text: str) -> None:
    typer.echo(text)
