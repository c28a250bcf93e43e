"""`headrace worlds write`: a language model writes domain specs; the command keeps those that compile, are solvable and are new."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.shared import Debug
from flows.cli.terminal import handle_errors, out, print_text

if TYPE_CHECKING:
    from synth.engines.base import Engine
    from synth.engines.budget import Budget
    from synth.engines.cache import Answers
    from synth.writing.cluster.cluster_task import ClusterTask
    from synth.writing.spec_folder import SpecFolder
    from synth.writing.spec_writer import Estimate

_PROBLEM_CHARACTERS = 90
"""Characters of a problem in the table; attempts.json has the whole text."""


Writer = Annotated[
    str, typer.Option("--engine", metavar="ENGINE", help="Language model that writes: openai:MODEL, vllm:MODEL or hf:FOLDER.")
]
Folder = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the specs and the report of all attempts.")]
Wanted = Annotated[int, typer.Option("--n", metavar="N", min=1, help="Number of specs in DIR at the end, those of earlier runs included.")]
About = Annotated[str, typer.Option("--about", metavar="TEXT", help="Business or area of the specs (default: any).")]
Like = Annotated[list[Path] | None, typer.Option("--like", metavar="FILE", help="Spec to show to the model and to vary; may be repeated.")]
AnswersStore = Annotated[
    Path | None,
    typer.Option("--store", "-s", metavar="DIR", help="Store that keeps the answers, so a repeated command reuses them."),
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", metavar="N", min=1, help="Budget of prompt and answer tokens together; servers only.")
]
MaxUsd = Annotated[float | None, typer.Option("--max-usd", metavar="X", min=0.0, help="Budget in dollars, by --usd-per-million.")]
UsdPerMillion = Annotated[
    tuple[float, float] | None, typer.Option("--usd-per-million", metavar="IN OUT", help="Price of a million prompt and answer tokens.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed; another seed asks for other specs.")]
OfCluster = Annotated[
    str | None, typer.Option("--cluster", metavar="ID", help="Cluster of the store whose tools the spec is to have, or its beginning.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print a prompt and the estimated tokens.")]


def write(
    engine: Writer,
    folder: Folder,
    wanted: Wanted = 3,
    about: About = "",
    like: Like = None,
    store: AnswersStore = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
    usd_per_million: UsdPerMillion = None,
    seed: Seed = 0,
    cluster: OfCluster = None,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Let a language model write new domain specs, and keep the good ones.

    A spec is kept if it compiles, if tasks of nearly all its intents can be solved, and if its tools differ from those of every other world
    (fewer than half the same, by name or by parameters). The model gets the problems of a bad spec and has four tries in all. Kept specs
    are varied: another business, one more entity, a deeper dependency, stricter rules. Read a spec before you use it: the command cannot
    check whether a business is realistic.

    With --cluster, the spec has exactly the tools of a cluster of the store (--store): names, parameters, which are required, and types;
    what differs goes back to the model too. The kept world makes the cluster executable.

    DIR/attempts.json has every attempt with its outcome, problems and tokens. Run the same command again to continue. Exit code 1 if fewer
    than N specs were kept.

    Examples:

      headrace worlds write --engine openai:gpt-4.1 --n 3 --about "a car workshop" --out my_worlds/ --dry-run

      headrace worlds write --engine vllm:Qwen/Qwen3-32B --n 20 --like my.yaml --out my_worlds/ --store runs/worlds --max-tokens 2000000

      headrace worlds write --cluster cluster-0123456789abcdef --store runs/tools/store --n 1 --engine openai:gpt-4.1 --out mail/

      headrace synthesize --world my_worlds/car_workshop.yaml
    """
    with handle_errors(debug):
        from synth.engines.budget import Budget
        from synth.engines.engine_names import kind_and_model
        from synth.writing.spec_writer import estimate, example_of

        kind_and_model(engine)
        task = None if cluster is None else _task_of(cluster, store, is_free=not (like or about))
        request: dict[str, Any] = {"like": [example_of(path) for path in like or ()], "about": about, "seed": seed, "cluster": task}
        if dry_run:
            _print_estimate(estimate(folder, wanted, **request))
        else:
            _write(engine, folder, wanted, store, Budget(max_tokens, max_usd, usd_per_million or (0.0, 0.0)), request)


def _write(engine: str, folder: Path, wanted: int, store: Path | None, budget: Budget, request: Mapping[str, Any]) -> None:
    """Write the specs and print all attempts. request: arguments of `write_specs` that describe the wanted specs."""
    from flows.runtime.progress import report, show_on_console
    from storage.errors import HeadraceError
    from synth.writing.spec_writer import write_specs

    _check_writable(folder)
    with open_writer(engine, folder, store, budget) as writer, show_on_console(out):
        result = write_specs(writer, folder, wanted, progress=report, **request)
    _print_attempts(result.folder)
    if store is not None and request["cluster"] is not None:
        _register(result.folder, store)
    if result.stopped:
        raise HeadraceError(result.stopped)


@contextlib.contextmanager
def open_writer(name: str, folder: Path, store: Path | None, budget: Budget) -> Iterator[Engine]:
    """Open the engine `name`. It logs into the folder. The store keeps its answers, if there is one."""
    from synth.engines.engine_names import EngineUse, engine_named

    with _open_answers(store) as answers, engine_named(name, EngineUse(folder / "engine.log", answers, budget)) as engine:
        yield engine


@contextlib.contextmanager
def _open_answers(store: Path | None) -> Iterator[Answers | None]:
    """Open the answers kept in the store, if there is one. They are committed at the end, also after an error."""
    if store is None:
        yield None
        return
    from flows.runtime.store_lock import hold_store
    from storage.store import Store
    from synth.engines.cache import Answers

    with hold_store("worlds write", store):
        answers = Answers(Store(store))
        try:
            yield answers
        finally:
            answers.commit()
            answers.close()


def _task_of(cluster: str, store: Path | None, *, is_free: bool) -> ClusterTask:
    """The task to write a world for a cluster."""
    from flows import validation
    from storage.errors import BadInput
    from synth.clusters.cluster_store import read_cluster
    from synth.writing.cluster.cluster_task import ClusterTask

    if not is_free:
        raise BadInput("--like and --about do not go with --cluster: its tools say what the world is about")
    chosen, tools = read_cluster(validation.open_store(None, store), cluster)
    return ClusterTask(chosen, tuple(tools))


def _register(folder: SpecFolder, store: Path) -> None:
    """Keep the worlds of the folder in the store, so that its clusters with their tools are executable."""
    from flows.runtime.store_lock import hold_store
    from storage.store import Store
    from synth.clusters.cluster_store import add_worlds
    from synth.worlds import WORLDS
    from synth.worlds.declarative.compile import compile_file

    worlds = [compile_file(folder.path / attempt.file) for attempt in folder.kept_attempts()]
    for world in worlds:
        WORLDS.register(world)
    with hold_store("worlds write", store):
        add_worlds(Store(store), [world.name for world in worlds])


def _check_writable(folder: Path) -> None:
    from storage.errors import BadInput

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder}: specs cannot be written there ({error.strerror}); give another --out") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput(f"{folder}: specs cannot be written there (no permission); give another --out")


# ---- output -----------------------------------------------------------------------------------------------------------


def _print_estimate(estimate: Estimate) -> None:
    if not estimate.missing:
        print_text("the folder has enough specs already; the model would not be asked")
        return
    for message in estimate.opening:
        print_text(f"---- {message.role}\n{message.content}\n")
    print_text(f"specs missing    {estimate.missing}, in at most {estimate.attempts} attempts")
    print_text(f"first prompt     {estimate.prompt_tokens:,} tokens (estimated from its characters)")
    print_text(f"tokens           {estimate.least_tokens:,} if every first answer is kept, {estimate.most_tokens:,} if no answer is kept")
    print_text("nothing was asked and nothing was written")


def _print_attempts(folder: SpecFolder) -> None:
    from flows.summaries.summary_tables import Table, print_table

    rows = [
        {
            "attempt": attempt.order.number,
            "outcome": attempt.outcome or "open",
            "tries": attempt.tries,
            "file": attempt.file,
            "parent": f"{Path(attempt.order.parent).name}, {attempt.order.change}" if attempt.order.parent else "",
            "intents": "{} of {}".format(*attempt.intents) if attempt.intents[1] else "",
            "likest": f"{attempt.likest} {attempt.likeness:.2f}" if attempt.likest else "",
            "tokens": f"{attempt.prompt_tokens + attempt.completion_tokens:,}",
            "what was wrong": attempt.problems[0][:_PROBLEM_CHARACTERS] if attempt.problems else "",
        }
        for attempt in folder.attempts
    ]
    if rows:
        print_table(Table("specs", f"Specs: {len(folder.kept_attempts())} kept of {len(rows)} attempts", rows), out)
    counts = ", ".join(f"{outcome} {count}" for outcome, count in folder.counts().most_common()) or "none"
    spent_usd = sum(attempt.usd for attempt in folder.attempts)
    read, written = (sum(getattr(attempt, key) for attempt in folder.attempts) for key in ("prompt_tokens", "completion_tokens"))
    cost = f", {spent_usd:.2f} dollars" if spent_usd else ""
    print_text(f"\noutcomes  {counts}\ntokens    {read:,} read, {written:,} written{cost}\nreport    {folder.path / 'attempts.json'}")
