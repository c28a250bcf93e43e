"""What did this data buy? Proxies on random mixtures of a store's sources, and what their held-out loss says of each source.

Each run trains one tiny policy from scratch, from the same weights, on as many tokens of data drawn by its mixture, and measures the loss
on the experts' conversations of the store's held-out tasks. `mixtures.py` turns losses into gains. Fresh mixtures, which the regression
has not seen, say how far its predictions can be trusted. Runs are lines of a file, so a killed call continues.

Not measured: success. A proxy of half a million weights that was trained for seconds seldom succeeds; its loss already ranks mixtures. And
whatever a larger model knows before: such a model may gain from sources that a proxy cannot learn from, and the reverse.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from scipy.stats import spearmanr

from storage.errors import BadInput
from storage.execution import Progress
from storage.files import replace_atomically
from storage.journal import Journal
from storage.records import Language, content_id
from storage.store import Store
from synth.run.evolution.source_weights import SourceKind
from train.child_process import run_in_workers
from train.data.seed_split import rough_tokens
from train.proxy.mixtures import FREE_RUNS, Floats, Gain, draw_data, draw_mixtures, fit_ridge, gains, weights
from train.proxy.sources import HeldOutConversation, LabelledConversation, read_held_out, read_sources, totals

VERSION = 2
SECONDS_PER_RUN_START = 8.0
TRUSTED_RANK = 0.6
"""Correlation of predicted and realised losses below which the weights of all sources are 1."""
TOKENS_PER_S = 12_000
"""About what one core reads in training, for the plan."""


class ValueConfig(BaseModel):
    """Configuration of `headrace value`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by: SourceKind = Field("world", description="What a source is: world, cluster, mode, origin, teacher or day.")
    language: Language = Field("en", description="Language of the conversations and of the held-out tasks.")
    runs: int = Field(24, ge=8, description="Proxies on random mixtures.")
    checks: int = Field(8, ge=4, description="Proxies on fresh mixtures, whose losses are predicted first.")
    data_tokens: int = Field(100_000, ge=10_000, description="Tokens of data of a run.")
    train_tokens: int = Field(300_000, ge=10_000, description="Tokens that a run reads, repetitions counted.")
    held_out: int = Field(300, ge=20, description="Most held-out tasks that are measured on.")
    seed: int = Field(0, ge=0, description="Seed of the mixtures, the weights and the order.")
    processes: int = Field(2, ge=1, description="Proxies at the same time, one thread each.")


@dataclass(frozen=True)
class ValueRun:
    """One proxy. kind: `mixture`, `check`, `whole` (the store's own shares) or `without` (the source `name`)."""

    kind: str
    name: str
    shares: tuple[float, ...]


@dataclass(frozen=True)
class LeftOut:
    """How much the held-out loss rises without a source (its tokens shared among the others); positive: the source is needed. From one
    training each, so without an interval."""

    source: str
    rise: float


@dataclass(frozen=True)
class Value:
    """What `headrace value` found.

    gains: of the mean loss of all held-out conversations; by_stratum: of the mean loss of each kind of them.
    rank: Spearman's correlation of predicted and realised losses of the fresh mixtures; predicted, realised: these losses.
    minutes: that the proxies took, those of earlier calls too, at this number of processes.
    """

    by: str
    tokens: dict[str, int]
    gains: list[Gain]
    by_stratum: dict[str, list[Gain]]
    left_out: list[LeftOut]
    rank: float
    predicted: list[float]
    realised: list[float]
    weights: dict[str, float]
    minutes: float


@dataclass(frozen=True)
class ValuePlan:
    """What a call would do. minutes: estimated for the runs that are left."""

    sources: dict[str, int]
    held_out: dict[str, int]
    runs: int
    left: int
    minutes: float


def plan_value(store: Store, config: ValueConfig) -> ValuePlan:
    """Raises BadInput as `value_sources` does."""
    study = _Study.read(store, config)
    kept = study.journal().entries()
    left = sum(run_key(run) not in kept for run in study.runs)
    minutes = left * (config.train_tokens / TOKENS_PER_S + SECONDS_PER_RUN_START) / config.processes / 60
    strata = {stratum: sum(one.stratum == stratum for one in study.held_out) for stratum in study.strata}
    return ValuePlan(study.source_tokens, strata, len(study.runs), left, minutes)


def value_sources(store: Store, config: ValueConfig, *, progress: Progress | None = None) -> tuple[Value, Path]:
    """Runs the proxies that are not kept yet, and returns what they say, and the folder with `value.json` (and `weights.json`, unless
    sources are origins).

    Raises:
        BadInput: the store has no conversations or held-out tasks in this language, all are of one source or of small ones, or there are
            too few runs for its sources.
    """
    study = _Study.read(store, config)
    with study.journal() as journal:
        kept: dict[str, Any] = journal.entries()
        waiting = [run for run in study.runs if run_key(run) not in kept]
        report = progress or (lambda *_: None)
        report("proxies", len(study.runs) - len(waiting), len(study.runs))
        for run, result in _results(study, waiting):
            kept[run_key(run)] = result
            journal.append(run_key(run), result)
            report("proxies", len(kept), len(study.runs))
    value = study.summarise(kept)
    _write_json(study.folder / "value.json", asdict(value))
    if config.by != "origin":  # `train.synthesised_share` sets it
        _write_json(study.folder / "weights.json", {"by": config.by, "weights": value.weights})
    return value, study.folder


def _write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    replace_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def run_key(run: ValueRun) -> str:
    return content_id("proxy", asdict(run))


@dataclass(frozen=True)
class _Study:
    """The data of a call, and its folder, named by the data and the configuration."""

    config: ValueConfig
    folder: Path
    conversations: list[LabelledConversation]
    held_out: list[HeldOutConversation]

    @classmethod
    def read(cls, store: Store, config: ValueConfig) -> _Study:
        conversations = read_sources(store, config.by, config.language)
        held_out = read_held_out(store, config.language, config.held_out)
        sources = len({one.source for one in conversations})
        if config.runs < sources + FREE_RUNS:
            raise BadInput(f"{sources} sources need at least {sources + FREE_RUNS} --runs, and {config.runs} are asked for")
        texts = [[one.source, *(message.to_openai() for message in one.messages)] for one in conversations]
        measured = [[message.to_openai() for message in one.messages] for one in held_out]
        settings = config.model_dump(exclude={"processes"})
        id = content_id("value", VERSION, settings, texts, measured)
        folder = store.root.parent / "value" / id
        return cls(config, folder, conversations, held_out)

    @property
    def strata(self) -> list[str]:
        return sorted({one.stratum for one in self.held_out})

    @cached_property
    def source_tokens(self) -> dict[str, int]:
        return totals(self.conversations, [rough_tokens(one.messages) for one in self.conversations])

    def journal(self) -> Journal:
        """Of the runs that are done: `losses` by stratum, and `seconds`."""
        return Journal(self.folder / "runs.jsonl")

    @cached_property
    def runs(self) -> list[ValueRun]:
        own = self._own_shares()
        rng = np.random.default_rng(self.config.seed)
        drawn = draw_mixtures(own, self.config.runs + self.config.checks, rng)
        kinds = ["mixture"] * self.config.runs + ["check"] * self.config.checks
        runs = [
            ValueRun(kind, str(at), tuple(shares)) for at, (kind, shares) in enumerate(zip(kinds, drawn.round(6).tolist(), strict=True))
        ]
        runs.append(ValueRun("whole", "", tuple(own.round(6).tolist())))
        for at, source in enumerate(self.source_tokens):
            rest = own.copy()
            rest[at] = 0.0
            runs.append(ValueRun("without", source, tuple((rest / rest.sum()).round(6).tolist())))
        return runs

    def _own_shares(self) -> Floats:
        tokens = np.array(list(self.source_tokens.values()), dtype=np.float64)
        shares: Floats = tokens / tokens.sum()
        return shares

    def summarise(self, kept: Mapping[str, Any]) -> Value:
        names = list(self.source_tokens)
        own, budget = self._own_shares(), self.config.data_tokens
        runs = {kind: [run for run in self.runs if run.kind == kind] for kind in ("mixture", "check", "whole", "without")}
        shares = {kind: np.array([run.shares for run in group]) for kind, group in runs.items()}
        losses = {kind: np.array([kept[run_key(run)]["losses"] for run in group]) for kind, group in runs.items()}
        counts = np.array([sum(one.stratum == stratum for one in self.held_out) for stratum in self.strata])
        mean = {kind: values @ counts / counts.sum() for kind, values in losses.items()}
        found = gains(names, shares["mixture"], mean["mixture"], own, budget)
        predicted = fit_ridge(shares["mixture"], mean["mixture"]).predict(shares["check"])
        rank = float(spearmanr(predicted, mean["check"]).statistic)
        rises = mean["without"] - mean["whole"][0]
        return Value(
            by=self.config.by,
            tokens=self.source_tokens,
            gains=found,
            by_stratum={
                stratum: gains(names, shares["mixture"], losses["mixture"][:, at], own, budget) for at, stratum in enumerate(self.strata)
            },
            left_out=[LeftOut(run.name, float(rise)) for run, rise in zip(runs["without"], rises, strict=True)],
            rank=rank,
            predicted=predicted.tolist(),
            realised=mean["check"].tolist(),
            weights=weights(found) if rank >= TRUSTED_RANK else dict.fromkeys(names, 1.0),
            minutes=sum(kept[run_key(run)]["seconds"] for run in self.runs) / self.config.processes / 60,
        )


def _results(study: _Study, runs: Sequence[ValueRun]) -> Iterator[tuple[ValueRun, dict[str, Any]]]:
    """Each run with its result, as they end."""
    if not runs:
        return
    path = study.folder / "data.json"
    if not path.exists():
        content = {
            "conversations": [[one.source, [message.to_openai() for message in one.messages]] for one in study.conversations],
            "held_out": [[one.stratum, [message.to_openai() for message in one.messages]] for one in study.held_out],
        }
        _write_json(path, content)
    yield from run_in_workers(_train_proxy, {run: (path, study.config, run) for run in runs}, study.config.processes)


def _train_proxy(data: Path, config: ValueConfig, run: ValueRun) -> dict[str, Any]:
    """Trains a proxy from scratch: `losses`, its mean held-out loss by stratum, in nats a token of the assistant, and `seconds`."""
    begun = time.monotonic()
    from train import tiny
    from train.proxy.token_training import TokenTraining, mean_losses, train
    from train.spec import TinyConfig

    material = _material(data)
    names = sorted(material.members)
    tokens = [example.tokens for example in material.examples]
    positions = draw_data(dict(zip(names, run.shares, strict=True)), material.members, tokens, config.data_tokens, config.seed)
    model = tiny.build_model(TinyConfig(positions=material.window), material.tokenizer, config.seed)
    train(model, [material.examples[at] for at in positions], TokenTraining(tokens=config.train_tokens), seed=config.seed)
    losses = mean_losses(model, material.held_out)
    by_stratum: dict[str, list[float]] = {}
    for stratum, loss in zip(material.strata, losses, strict=True):
        by_stratum.setdefault(stratum, []).append(loss)
    means = [float(np.mean(by_stratum[stratum])) for stratum in sorted(by_stratum)]
    return {"losses": means, "seconds": round(time.monotonic() - begun, 3)}


@dataclass(frozen=True)
class _Material:
    """What a worker reads once: tokens of all conversations, and which positions each source has."""

    tokenizer: Any
    examples: list[Any]
    members: dict[str, list[int]]
    held_out: list[Any]
    strata: list[str]
    window: int


@lru_cache(maxsize=1)
def _material(path: Path) -> _Material:
    from storage.records import Message
    from train import tiny
    from train.proxy.token_training import encode

    def read(rows: Sequence[Any]) -> list[tuple[Message, ...]]:
        return [tuple(Message.model_validate(message) for message in messages) for _, messages in rows]

    content = json.loads(path.read_text(encoding="utf-8"))
    conversations, held_out = read(content["conversations"]), read(content["held_out"])
    texts = [tiny.render(messages) for messages in (*conversations, *held_out)]
    tokenizer = tiny.build_tokenizer(sorted(set(texts)), splits_names=True)
    examples, measured = encode(tokenizer, conversations), encode(tokenizer, held_out)
    members: dict[str, list[int]] = {}
    for at, (source, _) in enumerate(content["conversations"]):
        members.setdefault(source, []).append(at)
    window = max(example.tokens for example in (*examples, *measured))
    return _Material(tokenizer, examples, members, measured, [stratum for stratum, _ in content["held_out"]], window)
