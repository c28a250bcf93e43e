"""`headrace tag` and `headrace evaluate`: what a policy can do, be it trained here or any engine by its name."""

from __future__ import annotations

from typing import Annotated

import typer

from flows import validation
from flows.cli.shared import LANGUAGE_MODELS, ConfigFile, Debug, DryRun, MaxTokens, MaxUsd, StoreFolder, UsdPerMillion, do
from flows.cli.terminal import told

PolicyNamed = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="ID|ENGINE",
        help="Policy: its id or stage, or openai:MODEL, vllm:MODEL, hf:FOLDER (default: the one promoted last).",
    ),
]
AnswerTokens = Annotated[
    int | None,
    typer.Option(
        "--answer-tokens", metavar="N", min=16, help="Tokens that one message of an engine may take.", rich_help_panel=LANGUAGE_MODELS
    ),
]


def tag(
    policy: PolicyNamed = None,
    config: ConfigFile = None,
    store: StoreFolder = None,
    again: Annotated[
        int, typer.Option("--again", metavar="N", min=0, help="Probe so many tasks a second time: how many regions are luck?")
    ] = 0,
    answer_tokens: AnswerTokens = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
    usd_per_million: UsdPerMillion = None,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Tag every task by difficulty and, where a policy is named or was promoted, by measured certainty (8 to 16 rollouts a task).

    `--dry-run` says how many rollouts that takes. A killed or stopped probe of an engine pays for no answer twice.

    Examples:

      headrace tag --store runs/sample/store

      headrace tag --store runs/sample/store --again 200

      headrace tag --store runs/sample/store --policy openai:gpt-5-mini --usd-per-million 0.25 2 --max-usd 5
    """
    with told(debug):
        limits = {"answer_tokens": answer_tokens, "max_tokens": max_tokens, "max_usd": max_usd, "usd_per_million": usd_per_million}
        settings = validation.asking(validation.settings(config, store), limits)
        if not dry_run:
            validation.has_tasks(settings)
            validation.policy(settings, policy, or_none=True)
        do("tag:tag", settings, dry_run, ("tag",), ("difficulty", "certainty", "flips"), policy=policy, again=again)


def evaluate(
    policy: PolicyNamed = None,
    config: ConfigFile = None,
    store: StoreFolder = None,
    answer_tokens: AnswerTokens = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
    usd_per_million: UsdPerMillion = None,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Measure a policy on the held-out tasks, in and out of distribution, with 95 % intervals.

    `--dry-run` says how many rollouts that takes. A killed or stopped evaluation of an engine pays for no answer twice.

    Examples:

      headrace evaluate --store runs/sample/store

      headrace evaluate --store runs/sample/store --policy vllm:models/teacher
    """
    with told(debug):
        limits = {"answer_tokens": answer_tokens, "max_tokens": max_tokens, "max_usd": max_usd, "usd_per_million": usd_per_million}
        settings = validation.asking(validation.settings(config, store), limits)
        if not dry_run:
            validation.policy(settings, policy)
        do("evaluate:evaluate", settings, dry_run, ("evaluate",), ("ladder", "facets"), policy=policy)
