"""`headrace worlds`: write a starter spec, check a spec, list the worlds, try one at a prompt, let a model write new ones."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.shared import Debug, NewestStore
from flows.cli.terminal import handle_errors, out, print_text, read_lines
from flows.cli.world import connect, explore, learn
from flows.cli.world.worlds_write import write
from storage.errors import BadInput

if TYPE_CHECKING:
    from synth.worlds.declarative.compiled_world import SpecWorld

app = typer.Typer(
    no_args_is_help=True,
    help="""Worlds: the executable domains of tasks. You can add your own as a YAML spec (docs/worlds.md).

Start with `headrace worlds new my.yaml`, then `headrace worlds check my.yaml` and `headrace worlds try my.yaml`.""",
)

_EXAMPLES = 3


@app.command()
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; an existing file is not changed.")],
    like: Annotated[str | None, typer.Option("--like", metavar="NAME", help="World of the library to copy, e.g. hotel.")] = None,
    languages: Annotated[str, typer.Option("--languages", metavar="LIST", help="Languages of your users: en, zh or en,zh.")] = "en,zh",
    debug: Debug = False,
) -> None:
    """Write a commented spec that compiles: a starter, or a copy of a world of the library under the name of the file.

    Examples:

      headrace worlds new my.yaml --languages en

      headrace worlds new inn.yaml --like hotel
    """
    with handle_errors(debug):
        from flows.validation import read_languages
        from synth.writing.new_spec import new_spec

        _write_new(file, new_spec(read_languages(languages), like, file))
        print_text(f"wrote {file}; change it to your business, then: headrace worlds check {file}")


@app.command()
def draft(
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="Spec to write; an existing file is not changed.")],
    tables: Annotated[
        list[Path] | None,
        typer.Option("--tables", metavar="FILE", help="Table: CSV, TSV, Parquet, JSON Lines, or a SQLite or DuckDB file."),
    ] = None,
    more: Annotated[list[Path] | None, typer.Argument(metavar="[FILE]...", help="More tables, after the first.")] = None,
    from_other: Annotated[
        str | None,
        typer.Option(
            "--from-other", metavar="TOPIC", help="Group of requests that no tool serves, as `headrace curate` names it, or its beginning."
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="ID", help="Cluster of a catalogue whose tools the world is to have, or its beginning."),
    ] = None,
    store: NewestStore = None,
    debug: Debug = False,
) -> None:
    """Write the first spec of a world: from tables, from what users ask for that no tool serves, or from a cluster of tools.

    From tables: entities, kinds of fields, keys, and a job that finds a row. The rows of the world are those of the tables (`rows_from`).
    What a table cannot say (nouns, labels, how people ask) is guessed and marked `# ?`: read the spec and mend it.

    From a group that `headrace curate` ended with: what its requests mention becomes a table beside the spec (names, days, times, amounts,
    numbers), and the requests stand in the spec as comments. Put a table of your own in its place.

    From a cluster of `headrace clusters build`: a spec with exactly its tools; what they work on and change is guessed from their names.

    Example: headrace worlds draft --tables restaurants.csv --out mine.yaml

    Several tables that refer to each other: --tables rooms.csv bookings.csv --out inn.yaml

    A group of requests: --from-other "parking permit" --out parking.yaml

      headrace worlds draft --cluster cluster-0123456789abcdef --store runs/tools/store --out mail.yaml
    """
    with handle_errors(debug):
        from synth.worlds.declarative.compile import compile_file
        from synth.worlds.declarative.language.problems import SpecError
        from synth.writing.draft_spec import draft_spec

        if sum((from_other is not None, cluster is not None, bool(tables))) != 1:
            raise BadInput("name tables (--tables FILE), a group of requests (--from-other TOPIC), or a cluster (--cluster ID)")
        if not tables and more:
            raise BadInput(f"{more[0]}: tables go with --tables; a group of requests and a cluster stand alone")
        if file.exists():
            raise BadInput(f"{file} exists; name another file")
        if tables:
            text = draft_spec([*tables, *(more or ())], file)
        elif cluster is not None:
            text = _draft_cluster(cluster, store, file)
        else:
            assert from_other is not None
            from filters.reading.log.draft_group import draft_group, group_of
            from flows import validation

            text = draft_group(*group_of(validation.open_store(None, store), from_other), file)
        _write_new(file, text)
        guesses = text.count("# ?")
        print_text(f"wrote {file}; mend its {guesses} guesses (# ?), then: headrace worlds check {file}")
        try:
            world = compile_file(file)
        except SpecError as error:
            print_text(f"it does not compile yet: {error.problems[0]}")
        else:
            print_text(f"it compiles as it is: {len(world.tools)} tools, {len(world.intents)} kinds of requests")


def _draft_cluster(name: str, store: Path | None, file: Path) -> str:
    from flows import validation
    from synth.clusters.cluster_store import read_cluster
    from synth.writing.cluster.skeleton_text import draft_cluster

    return draft_cluster(*read_cluster(validation.open_store(None, store), name), file)


def _write_new(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise BadInput(f"{file} exists; name another file") from None
    except OSError as error:
        raise BadInput(f"{file}: cannot be written ({error.strerror})") from None


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Domain spec.")],
    draws: Annotated[int, typer.Option("--n", metavar="N", min=1, help="Number of tasks drawn to measure the solvable share.")] = 200,
    debug: Debug = False,
) -> None:
    """Print all problems of a spec, each once; or, if it has none, the compiled world with example requests.

    A problem that is likely to cause others comes first. Exit code 2 if the spec cannot be compiled.

    Example: headrace worlds check my.yaml
    """
    with handle_errors(debug):
        from synth.worlds.declarative.compile import compile_file
        from synth.worlds.declarative.language.problems import SpecError, causes_of
        from synth.worlds.declarative.library_worlds import library_specs, world_of
        from synth.worlds.live.live_files import is_live_file

        if not file.is_file():
            raise BadInput(f"{file}: no such file; `headrace worlds new {file}` writes one to start from")
        if is_live_file(file):
            raise BadInput(f"{file} is a live world; check it with: headrace worlds connect file {file}")
        try:
            is_shipped = any(file.resolve() == path.resolve() for path in library_specs().values())
            world = world_of(file.stem) if is_shipped else compile_file(file)
        except SpecError as error:
            causes = causes_of(error.problems)
            for line in (line for cause in causes for line in cause.lines()):
                print_text(line)
            first = "; mend the first one first" if len(causes) > 1 else ""
            print_text(f"{file}: {len(causes)} problem{'s' if len(causes) > 1 else ''}{first}. docs/worlds.md describes the language")
            raise typer.Exit(2) from None
        _print_world(world, draws)


@app.command("list")
def list_(debug: Debug = False) -> None:
    """List the worlds of Headrace. Every number gives a generated world: gen-0, gen-1, ...

    Example: headrace worlds list
    """
    with handle_errors(debug):
        from flows.summaries.summary_tables import Table, print_table
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
        print_table(Table("worlds", f"Worlds: {len(rows)}, and gen-0, gen-1, ...", rows), out)


@app.command("try")
def try_(
    world: Annotated[str, typer.Argument(metavar="NAME|FILE", help="Name of a world, e.g. retail, banking, gen-7; or a spec file.")],
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the world's data.")] = 0,
    debug: Debug = False,
) -> None:
    """Try a world at a prompt: list its tools, call them, see the changes, draw a task.

    The command also reads lines from a pipe.

    Examples:

      headrace worlds try banking

      printf 'tools\\nask\\nsolve\\n' | headrace worlds try my.yaml --seed 3
    """
    with handle_errors(debug):
        from flows import validation
        from flows.interactive.world_repl import HELP, WorldSession
        from synth.worlds import WORLDS

        name = validation.resolve_world(world)
        session = WorldSession(name, seed, print_text)
        if sys.stdin.isatty():
            print_text(f"{name}, seed {seed}: {len(WORLDS[name].tools)} tools\n{HELP}")
        with contextlib.suppress(KeyboardInterrupt) if sys.stdin.isatty() else contextlib.nullcontext():
            for line in read_lines(f"{name}> ", session.first_words()):
                if not session.handle(line):
                    return
        if sys.stdin.isatty():
            out.print()


app.command("write")(write)
app.add_typer(connect.app, name="connect")
app.command("explore")(explore.explore)
app.command("learn")(learn.learn)


def _print_world(world: type[SpecWorld], draws: int) -> None:
    from synth.tasks.assessment import assess
    from synth.worlds.declarative.intents.computing import ComputeIntent
    from synth.worlds.declarative.languages import LANGUAGE_NAMES

    domain = world.domain
    rules = sum(len(action.rules) for action in domain.spec.actions.values())
    rows = ", ".join(f"{entity.name} {entity.spec.rows}" for entity in domain.by_number)
    print_text(f"{world.name}: {domain.spec.head.about.en}")
    print_text(f"languages {' and '.join(LANGUAGE_NAMES[language] for language in world.languages)}")
    print_text(f"entities  {len(domain.entities)} ({rows}), {sum(entity.spec.rows for entity in domain.by_number):,} rows")
    print_text(f"tools     {len(world.tools)}: {', '.join(tool.name for tool in world.tools)}")
    computing = sum(isinstance(intent, ComputeIntent) for intent in world.intents.values())
    print_text(f"rules     {rules}; intents {len(world.intents)}, {computing} of them compute with a program")
    for name, reason in world.unsolvable.items():
        print_text(f"left out  {name}: {reason}")
    assessment = assess(world, draws, seed=0)
    print_text(f"solvable  {assessment.solvable:,} of {assessment.tried:,} tasks drawn ({assessment.share:.1%})")
    for reason, count in assessment.refused.most_common(5):
        intent, _, why = reason.partition(": ")
        print_text(f"          {count:,} of {intent} cannot be solved: {why.removeprefix('misfit: ')}")
    for language, texts in assessment.requests.items():
        for text in texts[:_EXAMPLES]:
            print_text(f"{language}        {text}")
