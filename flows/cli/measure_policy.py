"""`headrace tag` and `headrace evaluate`: measure a policy of the store or any engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows import validation
from flows.cli.shared import LANGUAGE_MODELS, ConfigFile, Debug, DryRun, MaxTokens, MaxUsd, StoreFolder, UsdPerMillion, Verbose, run_or_plan
from flows.cli.terminal import handle_errors

SUITES = "Suites"

PolicyNamed = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="ID|ENGINE",
        help="Policy: its id or stage, or openai:MODEL, vllm:MODEL, hf:FOLDER (default: the last promoted policy).",
    ),
]
AnswerTokens = Annotated[
    int | None,
    typer.Option("--answer-tokens", metavar="N", min=16, help="Most tokens of one message of an engine.", rich_help_panel=LANGUAGE_MODELS),
]


SuiteNamed = Annotated[
    list[str] | None,
    typer.Option(
        "--suite",
        metavar="NAME|FILE",
        help="A benchmark of others in place of the held-out tasks: bfcl, tau2-retail, tau2-airline, agentdojo, or a file of tasks; may be "
        "repeated.",
        rich_help_panel=SUITES,
    ),
]
Group = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="NAME", help="Only this group of a suite's cases; may be repeated.", rich_help_panel=SUITES),
]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N cases of each group.", rich_help_panel=SUITES)
]
UserEngine = Annotated[
    str | None,
    typer.Option(
        "--user", metavar="ENGINE", help="Plays the user of tau2 (default: a scripted one, which says all at once).", rich_help_panel=SUITES
    ),
]
OutFile = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Write every conversation with both verdicts, as JSONL.", rich_help_panel=SUITES),
]


def tag(
    policy: PolicyNamed = None,
    config: ConfigFile = None,
    store: StoreFolder = None,
    again: Annotated[
        int, typer.Option("--again", metavar="N", min=0, help="Probe N tasks a second time, to measure how many regions change by chance.")
    ] = 0,
    answer_tokens: AnswerTokens = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
    usd_per_million: UsdPerMillion = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Tag every task by difficulty and, if a policy is named or promoted, by measured certainty (8 to 16 rollouts per task).

    `--dry-run` prints the number of rollouts. A probe that was killed or stopped reuses the engine's answers.

    Examples:

      headrace tag --store runs/sample/store

      headrace tag --store runs/sample/store --again 200

      headrace tag --store runs/sample/store --policy openai:gpt-5-mini --usd-per-million 0.25 2 --max-usd 5
    """
    with handle_errors(debug):
        limits = {"answer_tokens": answer_tokens, "max_tokens": max_tokens, "max_usd": max_usd, "usd_per_million": usd_per_million}
        settings = validation.set_engine_limits(validation.read_config(config, store), limits)
        if not dry_run:
            validation.check_has_tasks(settings)
            validation.check_policy(settings, policy, or_none=True)
        keys = ("difficulty", "certainty", "priors", "flips")
        run_or_plan("tag:tag", settings, dry_run, ("tag",), keys, verbose=verbose, policy=policy, again=again)


def evaluate(
    policy: PolicyNamed = None,
    suite: SuiteNamed = None,
    group: Group = None,
    limit: Limit = None,
    user: UserEngine = None,
    out_file: OutFile = None,
    config: ConfigFile = None,
    store: StoreFolder = None,
    answer_tokens: AnswerTokens = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
    usd_per_million: UsdPerMillion = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Measure a policy on the held-out tasks, in and out of distribution, with 95 % intervals.

    `--dry-run` prints the number of rollouts. An evaluation that was killed or stopped reuses the engine's answers.

    With `--suite` it plays the cases of a benchmark of others, greedily, in their state: our verifier's rate, that of their checker, and
    where the two differ. `make suites` installs tau2 and AgentDojo. Without a store, an engine's conversations are not kept.

    Examples:

      headrace evaluate --store runs/sample/store

      headrace evaluate --store runs/sample/store --policy vllm:models/teacher

      headrace evaluate --suite bfcl --policy rl --group base --limit 20 --store runs/sample/store

      headrace evaluate --suite tau2-retail --policy openai:gpt-5-mini --user openai:gpt-5-mini --usd-per-million 0.25 2 --dry-run
    """
    with handle_errors(debug):
        limits = {"answer_tokens": answer_tokens, "max_tokens": max_tokens, "max_usd": max_usd, "usd_per_million": usd_per_million}
        if suite:
            from flows.cli.measure_suites import SuiteOptions, measure_suites
            from flows.config import Config

            settings = validation.set_engine_limits(validation.read_config(config, store) if config else Config(), limits)
            place = store or (settings.store if config else None)
            chosen = SuiteOptions(group or (), limit, user, out_file, dry_run)
            measure_suites(suite, policy, place, settings, chosen)
            return
        validation.refuse_options_of_suites({"--group": group, "--limit": limit, "--user": user, "--out": out_file})
        settings = validation.set_engine_limits(validation.read_config(config, store), limits)
        if not dry_run:
            validation.check_policy(settings, policy)
        run_or_plan("evaluate:evaluate", settings, dry_run, ("evaluate",), ("ladder", "facets"), verbose=verbose, policy=policy)
