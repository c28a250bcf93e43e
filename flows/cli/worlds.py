"""`headrace worlds`: write a starter spec, check a spec, list the worlds there are, try one at a prompt, have new ones written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.terminal import lines, out, told
from flows.cli.worlds_write import write

if TYPE_CHECKING:
    from synth.worlds.declarative.compiled_world import SpecWorld

app = typer.Typer(
    no_args_is_help=True,
    help="""Worlds: the executable domains that tasks come from, and domains of your own, written as a YAML spec (docs/worlds.md).

Begin with `headrace worlds new my.yaml`, then `headrace worlds check my.yaml` and `headrace worlds try my.yaml`.""",
)

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
_EXAMPLES = 3


@app.command()
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the spec; a file that exists is left alone.")],
    debug: Debug = False,
) -> None:
    """Write a commented starter spec, which compiles as it stands.

    Example: headrace worlds new my.yaml
    """
    with told(debug):
        from importlib.resources import files

        from storage.errors import BadInput

        text = files("synth.worlds.declarative").joinpath("starter.yaml").read_text(encoding="utf-8")
        try:
            with file.open("x", encoding="utf-8") as opened:
                opened.write(text)
        except FileExistsError:
            raise BadInput(f"{file} exists; name another file") from None
        except OSError as error:
            raise BadInput(f"{file}: cannot be written ({error.strerror})") from None
        _say(f"wrote {file}; change it to your business, then: headrace worlds check {file}")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A domain spec.")],
    draws: Annotated[int, typer.Option("--n", metavar="N", min=1, help="Tasks drawn to measure how many can be solved.")] = 200,
    debug: Debug = False,
) -> None:
    """Say everything that is wrong with a spec, a line each; else what it compiles to, with examples of requests.

    Exit code 2 where it cannot be compiled.

    Example: headrace worlds check my.yaml
    """
    with told(debug):
        from synth.worlds.declarative.compile import compile_file
        from synth.worlds.declarative.language.problems import SpecError

        try:
            world = compile_file(file)
        except SpecError as error:
            for problem in error.problems:
                _say(str(problem))
            _say(f"{file}: {len(error.problems)} problem{'s' if len(error.problems) > 1 else ''}; docs/worlds.md describes the language")
            raise typer.Exit(2) from None
        _tell(world, draws)


@app.command("list")
def list_(debug: Debug = False) -> None:
    """List the worlds that come with Headrace. Generated ones are called gen-0, gen-1, ...: any number is one.

    Example: headrace worlds list
    """
    with told(debug):
        from flows.summary_tables import Table, draw
        from synth.worlds import WORLDS

        rows = []
        for name in WORLDS.names():
            world = WORLDS[name]
            rows.append(
                {
                    "world": name,
                    "tools": len(world.tools),
                    "that change state": sum(tool.changes_state for tool in world.tools),
                    "intents": len(world.intents),
                    "refusing": sum(intent.refusal is not None for intent in world.intents.values()),
                }
            )
        draw(Table("worlds", f"Worlds: {len(rows)}, and gen-0, gen-1, ...", rows), out)


@app.command("try")
def try_(
    world: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A world's name, e.g. retail, banking, gen-7; or a spec file.")],
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Which world of its kind.")] = 0,
    debug: Debug = False,
) -> None:
    """Try a world at a prompt: list its tools, call them, see what changed, ask for a task.

    Reads lines from a pipe too.

    Examples:

      headrace worlds try banking

      printf 'tools\\nask\\nsolve\\n' | headrace worlds try my.yaml --seed 3
    """
    with told(debug):
        from flows import validation
        from flows.interactive.world_repl import HELP, Session
        from synth.worlds import WORLDS

        name = validation.world_name(world)
        session = Session(name, seed, _say)
        if sys.stdin.isatty():
            _say(f"{name}, seed {seed}: {len(WORLDS[name].tools)} tools\n{HELP}")
        for line in lines(f"{name}> ", session.words()):
            if not session.handle(line):
                break


app.command("write")(write)


def _say(text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)


def _tell(world: type[SpecWorld], draws: int) -> None:
    from synth.tasks.assessment import assess
    from synth.worlds.declarative.intents.computing import Computing
    from synth.worlds.declarative.shapes import shape_of

    domain = world.domain
    rules = sum(len(action.rules) for action in domain.spec.actions.values())
    rows = ", ".join(f"{entity.name} {entity.spec.rows}" for entity in domain.by_number)
    _say(f"{world.name}: {domain.spec.head.about.en}")
    _say(f"entities  {len(domain.entities)} ({rows}), {sum(entity.spec.rows for entity in domain.by_number):,} rows")
    _say(f"tools     {len(world.tools)}: {', '.join(tool.name for tool in world.tools)}")
    computing = sum(isinstance(intent, Computing) for intent in world.intents.values())
    _say(f"rules     {rules}; intents {len(world.intents)}, {computing} of them compute with a program; shape {shape_of(world)}")
    for name, reason in world.unsolvable.items():
        _say(f"left out  {name}: {reason}")
    found = assess(world, draws, seed=0)
    _say(f"solvable  {found.solvable:,} of {found.tried:,} tasks drawn ({found.share:.1%})")
    for reason, count in found.refused.most_common(5):
        _say(f"          {count:,}: {reason}")
    for language, texts in found.requests.items():
        for text in texts[:_EXAMPLES]:
            _say(f"{language}        {text}")
