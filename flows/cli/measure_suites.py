"""`headrace evaluate --suite`: measures a policy on benchmarks of others, and prints both verdicts and where they differ."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flows.cli.terminal import out, print_text

if TYPE_CHECKING:
    from flows.config import Config
    from flows.summaries.summary_tables import Table
    from synth.engines.base import Engine
    from train.config import EngineConfig
    from train.measure.suites.figures import Cost, Rate
    from train.measure.suites.measure import Measured
    from train.measure.suites.suite import SuiteCase

_SHOWN = 20
"""Disagreements that are printed; the store's file has all."""


@dataclass(frozen=True)
class SuiteOptions:
    """Options of `headrace evaluate` for suites; see its help."""

    groups: Sequence[str]
    limit: int | None
    user: str | None
    out_file: Path | None
    dry_run: bool


def measure_suites(
    names: Sequence[str],
    policy: str | None,
    store: Path | None,
    settings: Config,
    options: SuiteOptions,
) -> None:
    """Measure a policy on these suites, and print what each says as it ends; or print what that takes."""
    from flows.config import keep_budgets
    from flows.summaries.summary_tables import print_table
    from storage.store import Store
    from synth.worlds.stored_worlds import register_stored
    from train.measure.suites.suite_names import check_names

    check_names(names)
    config = settings.train.engine
    if store is not None:
        register_stored(Store(store))
    cases = {name: _cases(name, options) for name in dict.fromkeys(names)}
    if options.dry_run:
        print_table(_plan(cases, config), out)
        print_text("nothing was done", style="dim")
        return
    _check_writable(options.out_file)
    if store is not None:
        keep_budgets(settings, store)
    with contextlib.closing(_measure(cases, policy, store, config, options.user)) as every:
        for place, (name, measured) in enumerate(every):
            if options.out_file is not None:
                _write_sessions(options.out_file, measured, "a" if place else "w")
            _print_measured(name, measured)


def _measure(
    cases: dict[str, list[SuiteCase]], policy: str | None, store: Path | None, config: EngineConfig, user: str | None
) -> Generator[tuple[str, Measured]]:
    """The name of the engine, and what a suite says of it, as each ends."""
    from flows.resolve_policy import open_engine, resolve_policy
    from flows.runtime.progress import report, show_on_console
    from flows.runtime.store_lock import hold_store
    from storage.records import content_id
    from train.measure.suites.measure import measure_suite
    from train.measure.suites.suite_names import open_suite

    target = resolve_policy(policy, store)
    how = {"max_tokens": config.answer_tokens, "in_flight": config.in_flight}
    with contextlib.ExitStack() as stack:
        if target.store is not None:
            stack.enter_context(hold_store("evaluate", target.store.root))
        run = content_id("run", "suites", target.policy.id)
        engine = stack.enter_context(open_engine(target, config, command="evaluate", run=run))
        player = None if user is None else stack.enter_context(_open_user(user, store, config))
        stack.enter_context(show_on_console(out))
        for name, selected in cases.items():
            with open_suite(name, player) as suite:
                measured = measure_suite(engine, suite, selected, target.policy.id, store=target.store, progress=report, **how)
            yield engine.name, measured


def _cases(name: str, options: SuiteOptions) -> list[SuiteCase]:
    """The cases to play; says what is missing before an engine starts."""
    from train.measure.suites.suite_names import open_suite

    with open_suite(name) as suite:
        return suite.cases(options.groups, options.limit)


@contextlib.contextmanager
def _open_user(name: str, store: Path | None, config: EngineConfig) -> Iterator[Engine]:
    """The engine that plays the user; its answers are kept where the policy's are."""
    from flows.resolve_policy import open_engine, resolve_policy

    with open_engine(resolve_policy(name, store), config, command="evaluate") as engine:
        yield engine


def _check_writable(path: Path | None) -> None:
    from storage.errors import BadInput

    if path is None:
        return
    existed = path.exists()
    try:
        path.open("a").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise BadInput(f"{path}: the file cannot be written ({error.strerror}); give another --out") from None


def _write_sessions(path: Path, measured: Measured, mode: Literal["w", "a"]) -> None:
    with path.open(mode, encoding="utf-8") as file:
        for session in measured.sessions:
            file.write(json.dumps({"suite": measured.suite, **session.to_json()}, ensure_ascii=False) + "\n")


# ---- output ------------------------------------------------------------------------------------------------------------


def _plan(cases: dict[str, list[SuiteCase]], config: EngineConfig) -> Table:
    from flows.summaries.summary_tables import Table
    from train.measure.suites.figures import estimate

    rows = []
    for name, selected in cases.items():
        cost = estimate(selected)
        rows.append(
            {
                "suite": name,
                "cases": f"{cost.cases:,}",
                "requests": f"{cost.requests:,}",
                "prompt tokens": f"{cost.prompt_tokens:,}",
                "answer tokens": f"{cost.answer_tokens:,}",
                "cost": _usd(cost, config.usd_per_million),
            }
        )
    return Table("suites", "Plan, if the policy makes as many calls as the references, one a message; tokens are estimated", rows)


def _usd(cost: Cost, price: tuple[float, float]) -> str:
    if not any(price):
        return "by its engine"
    return f"{(cost.prompt_tokens * price[0] + cost.answer_tokens * price[1]) / 1e6:.2f} USD"


def _print_measured(engine: str, measured: Measured) -> None:
    from flows.summaries.summary_tables import Table, print_table

    rows = [
        {
            "group": accuracy.group,
            "cases": accuracy.cases,
            "rated": accuracy.ours.rated,
            "our verifier (95 %)": _format(accuracy.ours),
            "its checker (95 %)": _format(accuracy.theirs),
            "both agree": _format(accuracy.agree),
            "ended early": accuracy.ended_early.passed,
        }
        for accuracy in measured.accuracies
    ]
    print_table(Table("suite", f"Suite {measured.suite}: {engine}", rows), out)
    differing = measured.disagreements
    if differing:
        shown = [{"case": one.case_id, "accepted by": one.accepted_by, "the other says": one.reason} for one in differing[:_SHOWN]]
        more = f", the first {_SHOWN}" if len(differing) > _SHOWN else ""
        print_table(Table("disagreements", f"Where the verdicts differ: {len(differing)} cases{more}", shown), out)
    if measured.accuracies[0].ended_early.passed:
        print_text(
            "ended early: no checker saw these conversations; they are failures by both rates, and count in no agreement", style="dim"
        )
    if measured.note:
        print_text(measured.note, style="dim")
    if measured.failures:
        print_text(f"not rated, for example: {measured.failures[0]}", style="yellow")
    if measured.file is not None:
        print_text(f"the conversations with both verdicts: {measured.file}", style="dim")


def _format(rate: Rate) -> str:
    from storage.report.evaluation_queries import format_rate

    return f"{rate.passed} = {format_rate(rate.rate, *rate.interval)}" if rate.rated else ""
