"""`headrace worlds write`: a language model writes domain specs; those that compile, are solvable and are new are kept as files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.shared import Debug
from flows.cli.terminal import out, told

if TYPE_CHECKING:
    from synth.engines.base import Engine
    from synth.engines.budget import Budget
    from synth.engines.cache import Answers
    from synth.writing.spec_folder import SpecFolder
    from synth.writing.spec_writer import Estimate

_WHY = 90
"""Characters of a problem that the table shows; all of it is in attempts.json."""


Writer = Annotated[str, typer.Option("--engine", metavar="ENGINE", help="Who writes: openai:MODEL, vllm:MODEL or hf:FOLDER.")]
Folder = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where specs and the report of all attempts go.")]
Wanted = Annotated[int, typer.Option("--n", metavar="N", min=1, help="Specs to have in DIR, those of earlier runs counted.")]
About = Annotated[str, typer.Option("--about", metavar="TEXT", help="The business or area that is wanted; any, if not said.")]
Like = Annotated[list[Path] | None, typer.Option("--like", metavar="FILE", help="Spec to show and to vary; may be repeated.")]
AnswersStore = Annotated[
    Path | None,
    typer.Option("--store", "-s", metavar="DIR", help="Store to keep answers in, so that nothing is paid for twice after a kill."),
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", metavar="N", min=1, help="Tokens to spend at most, read and written; servers only.")
]
MaxUsd = Annotated[float | None, typer.Option("--max-usd", metavar="X", min=0.0, help="Dollars to spend, by --usd-per-million.")]
UsdPerMillion = Annotated[
    tuple[float, float] | None, typer.Option("--usd-per-million", metavar="IN OUT", help="Price of a million prompt and answer tokens.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Another seed asks for other specs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be asked and spent, show a prompt, and do nothing.")]


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
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Let a language model write new domain specs, and keep those that are good.

    A spec is kept if it compiles, if tasks of nearly all its intents can be solved, and if its tools differ from those of every world there
    is (below half the same, by name or by what they take). What is wrong is told to the model, which mends it, four times at most; what was
    kept is varied: another business, one more entity, a deeper dependency, stricter rules. Read what was kept before you use it: no machine
    tells whether a business is realistic.

    DIR/attempts.json has every attempt, its outcome, problems and tokens. The same command continues where it was. Exit code 1 where fewer
    were kept than are wanted.

    Examples:

      headrace worlds write --engine openai:gpt-4.1 --n 3 --about "a car workshop" --out my_worlds/ --dry-run

      headrace worlds write --engine vllm:Qwen/Qwen3-32B --n 20 --like my.yaml --out my_worlds/ --store runs/worlds --max-tokens 2000000

      headrace synthesize --world my_worlds/car_workshop.yaml
    """
    with told(debug):
        from flows.runtime.progress import report, show_on_console
        from storage.errors import HeadraceError
        from synth.engines.budget import Budget
        from synth.engines.engine_names import kind_and_model
        from synth.writing.spec_writer import estimate, example_of, write_specs

        kind_and_model(engine)
        examples = [example_of(path) for path in like or ()]
        if dry_run:
            _tell_estimate(estimate(folder, wanted, like=examples, about=about, seed=seed))
            return
        _check_writable(folder)
        with _writer(engine, folder, store, Budget(max_tokens, max_usd, usd_per_million or (0.0, 0.0))) as asked, show_on_console(out):
            ended = write_specs(asked, folder, wanted, like=examples, about=about, seed=seed, progress=report)
        _tell(ended.folder)
        if ended.stopped:
            raise HeadraceError(ended.stopped)


@contextlib.contextmanager
def _writer(name: str, folder: Path, store: Path | None, budget: Budget) -> Iterator[Engine]:
    """The engine of this name, which logs into the folder and whose answers the store keeps, if one is named."""
    from synth.engines.engine_names import engine_named

    with _answers(store) as answers, engine_named(name, log=folder / "engine.log", answers=answers, budget=budget) as engine:
        yield engine


@contextlib.contextmanager
def _answers(store: Path | None) -> Iterator[Answers | None]:
    """Answers kept in the store, if one is named, and committed in the end whatever happens."""
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


def _check_writable(folder: Path) -> None:
    from storage.errors import BadInput

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder}: no specs can be written there ({error.strerror}); give another --out") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput(f"{folder}: no specs can be written there (no permission); give another --out")


# ---- what is said -----------------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)


def _tell_estimate(found: Estimate) -> None:
    if not found.missing:
        _say("as many specs are there as are wanted; nothing would be asked")
        return
    for message in found.opening:
        _say(f"---- {message.role}\n{message.content}\n")
    _say(f"specs missing    {found.missing}, in at most {found.attempts} attempts")
    _say(f"a first prompt   {found.prompt_tokens:,} tokens (guessed from its characters)")
    _say(f"tokens           {found.least_tokens:,} if every first answer is kept, {found.most_tokens:,} if none ever is")
    _say("nothing was asked, nothing was written")


def _tell(folder: SpecFolder) -> None:
    from flows.summary_tables import Table, draw

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
            "what was wrong": attempt.problems[0][:_WHY] if attempt.problems else "",
        }
        for attempt in folder.attempts
    ]
    if rows:
        draw(Table("specs", f"Specs: {len(folder.kept())} kept of {len(rows)} attempts", rows), out)
    counts = ", ".join(f"{outcome} {count}" for outcome, count in folder.counts().most_common()) or "none"
    spent_usd = sum(attempt.usd for attempt in folder.attempts)
    read, written = (sum(getattr(each, key) for each in folder.attempts) for key in ("prompt_tokens", "completion_tokens"))
    cost = f", {spent_usd:.2f} dollars" if spent_usd else ""
    _say(f"\noutcomes  {counts}\ntokens    {read:,} read, {written:,} written{cost}\nreport    {folder.path / 'attempts.json'}")
