"""`headrace config`: print all keys of a configuration, the problems of a file, or its differences from the defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.shared import Debug
from flows.cli.terminal import handle_errors

app = typer.Typer(
    help="""The configuration: the reference of all its keys, and checks of a file.

A file needs only the keys that differ from the defaults; configs/sample.yaml shows the most used keys. Without a subcommand the command
prints the reference.

Examples:

  headrace config

  headrace config check configs/sample.yaml

  headrace config diff configs/ladder.yaml""",
)

_HEAD = """# All keys of a configuration, as YAML. Copy the keys that you want to change into your own file, and pass it with --config.
# In [brackets]: the allowed values. The values are {source}.
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
    """Print every key with its meaning, allowed values and default, as commented YAML that is a valid configuration file.

    With FILE the command prints the values of that file, and the default of each key that differs.

    Examples:

      headrace config show

      headrace config show configs/ci.yaml

      headrace config show > full.yaml
    """
    with handle_errors(debug):
        from flows.config import Config, read
        from flows.config_reference import reference
        from flows.yaml_config import parse

        settings, written = (Config(), None) if file is None else (read(file), parse(file).values)
        typer.echo(_HEAD.format(source="the defaults" if file is None else f"those of {file}"))
        typer.echo(reference(settings, written=written))


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Configuration file.")],
    debug: Debug = False,
) -> None:
    """Print all problems of a configuration file, one per line: unknown keys with the nearest valid key, and values that are not allowed.

    The command reads only the file and the worlds and wordings that it names; `headrace doctor --config FILE` checks engines and cluster.
    Exit code 2 if the file has a problem.

    Example: headrace config check configs/sample.yaml
    """
    with handle_errors(debug):
        from flows.config import read
        from flows.yaml_config import ConfigError

        try:
            read(file)
        except ConfigError as error:
            for problem in error.problems:
                typer.echo(problem)
            typer.echo(f"{file}: {len(error.problems)} problem{'s' * (len(error.problems) > 1)}; `headrace config` explains every key")
            raise typer.Exit(2) from None
        typer.echo(f"{file}: valid")


@app.command()
def diff(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Configuration file.")],
    debug: Debug = False,
) -> None:
    """Print the keys of a file whose values differ from the defaults, as YAML, with the default in a comment.

    Example: headrace config diff configs/ladder.yaml
    """
    with handle_errors(debug):
        from flows.config import read
        from flows.config_reference import differences
        from flows.yaml_config import parse

        typer.echo(differences(read(file), written=parse(file).values) or f"# {file}: every value is the default")
