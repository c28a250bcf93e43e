"""The spec writer: a language model writes domain specs, repairs them by the gate's messages, and varies kept ones.

One idea: an attempt is a conversation of constant length: the first request, the last spec, and its problems. A spec that passes the gate
(`spec_gate.py`) is kept as a file (`spec_folder.py`) and may be the parent of a later attempt, which asks for another business, one more
entity, a deeper dependency or stricter rules. Each round makes as many attempts as specs are missing, each with its own seed. If the engine
fails or the budget is spent, the attempt stays open.

Not checked: whether a business is realistic, or its Chinese natural; read a kept spec before you use it.
Source: evolve and repair after Evol-Instruct (arXiv 2304.12244), with a compiler and a solver in place of a judge.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from storage.errors import BadInput
from storage.execution import Progress
from storage.files import file_lock
from storage.records import Message
from synth.engines.base import ChatAnswer, ChatRequest, Engine, EngineFailure, EngineUnusable, check_window, estimated_tokens
from synth.engines.budget import BudgetSpent
from synth.prompts import prompt, versions
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_file, compile_spec
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.writing.cluster.cluster_task import PROMPTS as CLUSTER_PROMPTS
from synth.writing.cluster.cluster_task import ClusterTask
from synth.writing.similarity import Signatures, signatures_of
from synth.writing.spec_folder import Attempt, Order, SpecFolder, body_of
from synth.writing.spec_gate import GateResult, SpecGateConfig, check_answer

CHANGES = ("another_business", "another_entity", "deeper_dependency", "stricter_rules")
"""Kinds of variations; `spec_writer_evolve.md` has the words."""
PROMPTS = ("spec_writer", "spec_writer_evolve", "spec_writer_repair")
_STARTER = "tool_library"
"""The domain of `starter.yaml`, which every prompt contains."""
_MAX_FAILURES = 3
"""Failures in a row after which an engine counts as gone."""


class SpecWriterConfig(BaseModel):
    """Configuration of the spec writer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repairs: int = Field(4, ge=0, le=20, description="How often a spec is sent back with its problems.")
    attempts_per_spec: int = Field(4, ge=1, le=100, description="Most attempts per wanted spec.")
    at_once: int = Field(16, ge=1, le=1024, description="Attempts at once.")
    examples: int = Field(1, ge=0, le=4, description="Specs in the prompt beside the starter, of those given and those kept.")
    evolve_share: float = Field(0.5, ge=0, le=1, description="Share of attempts that vary a kept or given spec, once there is one.")
    temperature: float = Field(0.8, ge=0, le=2, description="Sampling temperature.")
    max_tokens: int = Field(8192, ge=256, description="Tokens of an answer; a spec takes 3,000 to 6,000.")
    gate: SpecGateConfig = Field(SpecGateConfig(), description="Conditions for keeping a spec.")


@dataclass(frozen=True, slots=True)
class Example:
    """A spec that compiles, for prompts."""

    name: str
    text: str
    domain: str
    signatures: Signatures


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a run. stopped: why fewer than `count` specs were kept; empty if all were."""

    folder: SpecFolder
    stopped: str


def example_of(path: Path) -> Example:
    """A spec file as an example.

    Raises:
        SpecError: it does not compile; the message names the file.
    """
    world = compile_file(path)
    return Example(str(path), body_of(path.read_text(encoding="utf-8")), world.domain.name, signatures_of(world))


def starter_text() -> str:
    return files("synth.worlds.declarative").joinpath("starter.yaml").read_text(encoding="utf-8")


def known_worlds(like: Sequence[Example]) -> dict[str, Signatures]:
    """The worlds that a new spec must differ from, without those of its folder: shipped, registered, the starter, the examples."""
    starter = compile_spec(parse_text(starter_text()))
    signatures = {name: signatures_of(WORLDS[name]) for name in WORLDS.names()}
    return {**signatures, _STARTER: signatures_of(starter), **{each.name: each.signatures for each in like}}


def write_specs(
    engine: Engine,
    out: Path,
    count: int,
    *,
    like: Sequence[Example] = (),
    about: str = "",
    seed: int = 0,
    cluster: ClusterTask | None = None,
    config: SpecWriterConfig | None = None,
    progress: Progress = lambda label, done, total: None,
) -> WriteResult:
    """Writes specs until the folder has `count` kept ones, or the attempts are used up; the folder's report has every attempt.

    Args:
        count: number of kept specs in the folder, with those of earlier runs.
        like: specs to start from: examples in prompts, and parents of variations.
        about: the wanted business or area, any text; empty for any.
        cluster: the cluster whose tools a spec is to have; then `like` and `about` have no effect.

    Raises:
        BadInput: the folder's report cannot be read, or is of another cluster; a spec does not fit the model's context window.
        Busy: another process writes into the folder.
    """
    with file_lock(out / ".lock", wait_s=1.0):
        config = config or SpecWriterConfig()
        orders = _Orders(SpecFolder(out), like, config, cluster)
        check_window(engine, orders.opening(Order(number=0, seed=0, about=about)), config.max_tokens)
        return WriteResult(orders.folder, _Writer(engine, orders, config, known_worlds(like)).run(count, about, seed, progress))


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated cost of a run. Tokens are estimated from characters.

    missing: number of specs to write.
    attempts: most attempts.
    prompt_tokens: of a first request.
    least_tokens, most_tokens: of the run, if every first answer is kept, and if none ever is.
    opening: the first request.
    """

    missing: int
    attempts: int
    prompt_tokens: int
    least_tokens: int
    most_tokens: int
    opening: tuple[Message, ...]


def estimate(
    out: Path,
    count: int,
    *,
    like: Sequence[Example] = (),
    about: str = "",
    seed: int = 0,
    cluster: ClusterTask | None = None,
    config: SpecWriterConfig | None = None,
) -> Estimate:
    """Estimates the cost of `write_specs`, without any request or file.

    Raises:
        BadInput: as there.
    """
    config = config or SpecWriterConfig()
    orders = _Orders(SpecFolder(out), like, config, cluster)
    missing = max(0, count - len(orders.folder.kept_attempts()))
    openings = [orders.opening(attempt.order) for attempt in orders.next_round(count, about, seed)] if missing else []
    first = max((sum(estimated_tokens(message.content or "") for message in opening) for opening in openings), default=0)
    spec = estimated_tokens(starter_text())
    attempts = orders.count_remaining(count) if missing else 0
    most = attempts * (config.repairs + 1) * (first + 2 * config.max_tokens)
    return Estimate(missing, attempts, first, min(missing, attempts) * (first + spec), most, openings[0] if openings else ())


class _Orders:
    """The next attempts, and their prompts."""

    def __init__(self, folder: SpecFolder, like: Sequence[Example], config: SpecWriterConfig, cluster: ClusterTask | None) -> None:
        self.folder, self._config, self.cluster = folder, config, cluster
        wanted = cluster.cluster.id if cluster is not None else ""
        if any(each.order.cluster != wanted for each in folder.attempts):
            raise BadInput(f"{folder.path} has specs of another kind, or for another cluster; give another folder")
        self._examples: dict[str, Example] = {each.name: each for each in like}
        for attempt in folder.kept_attempts():
            self.show(attempt.file)
        self._starter = starter_text().strip()

    def show(self, file: str) -> None:
        """Adds a kept spec to the examples and parents."""
        self._examples[file] = replace(example_of(self.folder.path / file), name=file)

    def count_remaining(self, count: int) -> int:
        """Number of attempts that may still be made for `count` specs in all."""
        return len(self._open()) + len(self._numbers(count))

    def next_round(self, target: int, about: str, seed: int) -> list[Attempt]:
        """As many attempts as specs are missing, open ones first; empty if all are used up."""
        count = min(target - len(self.folder.kept_attempts()), self._config.at_once)
        open_attempts = self._open()[:count]
        return [
            *open_attempts,
            *(Attempt(order=self._order(number, about, seed)) for number in self._numbers(target)[: count - len(open_attempts)]),
        ]

    def opening(self, order: Order) -> tuple[Message, ...]:
        """The first request of an attempt."""
        if self.cluster is not None:
            return self.cluster.opening(self._starter)
        limit = round(100 * self._config.gate.most_alike)
        values = {"starter": self._starter, "most_alike": limit, "about": order.about, "known": order.known}
        examples = [self._examples[name].text.strip() for name in order.examples]
        system, new = prompt("spec_writer").messages(**values, examples=examples)
        if not order.parent:
            return system, new
        parent = self._examples[order.parent].text.strip()
        return system, prompt("spec_writer_evolve").messages(**values, parent=parent, change=order.change)[1]

    def _open(self) -> list[Attempt]:
        """Attempts without an outcome whose examples and parent still exist."""
        unfinished = [attempt for attempt in self.folder.attempts if attempt.outcome is None]
        return [each for each in unfinished if {*each.order.examples, each.order.parent} <= {*self._examples, ""}]

    def _numbers(self, count: int) -> list[int]:
        """Numbers of the attempts that were not made yet."""
        used = {attempt.order.number for attempt in self.folder.attempts}
        return [number for number in range(count * self._config.attempts_per_spec) if number not in used]

    def _order(self, number: int, about: str, seed: int) -> Order:
        rng = random.Random(f"spec/{seed}/{number}")
        if self.cluster is not None:
            return Order(number=number, seed=rng.getrandbits(62), cluster=self.cluster.cluster.id)
        attempt_seed, names = rng.getrandbits(62), sorted(self._examples)
        domains = tuple(sorted({*(each.domain for each in self._examples.values()), *WORLDS.names(), _STARTER}))
        if names and rng.random() < self._config.evolve_share:
            return Order(number=number, seed=attempt_seed, about=about, parent=rng.choice(names), change=rng.choice(CHANGES), known=domains)
        examples = tuple(rng.sample(names, min(self._config.examples, len(names))))
        return Order(number=number, seed=attempt_seed, about=about, examples=examples, known=domains)


@dataclass(slots=True)
class _Draft:
    """An open attempt. opening: its first request. repair: the last answer and its problems."""

    attempt: Attempt
    opening: tuple[Message, ...]
    repair: tuple[Message, ...] = ()


class _Writer:
    def __init__(self, engine: Engine, orders: _Orders, config: SpecWriterConfig, signatures: Mapping[str, Signatures]) -> None:
        self.engine, self.orders, self.config = engine, orders, config
        self.folder, self._known = orders.folder, {**signatures, **orders.folder.signatures()}

    def run(self, count: int, about: str, seed: int, progress: Progress) -> str:
        """Rounds until enough specs are kept. Returns why it stopped earlier, or an empty text."""
        while (missing := count - len(self.folder.kept_attempts())) > 0:
            progress("write specs", count - missing, count)
            attempts = self.orders.next_round(count, about, seed)
            if not attempts:
                return f"{count - missing} of {count} specs kept, and no attempt is left; the table says what was wrong with the others"
            self.folder.note(attempts)
            try:
                failures = self._round([_Draft(attempt, self.orders.opening(attempt.order)) for attempt in attempts])
            except (BudgetSpent, EngineUnusable) as stopped:
                return str(stopped)
            if len(failures) == len(attempts):
                return f"the engine failed: {failures[0]}; the same command continues"
        progress("write specs", count, count)
        return ""

    # ---- a round --------------------------------------------------------------------------------------------------------------

    def _round(self, drafts: Sequence[_Draft]) -> list[str]:
        """Requests and repairs until every draft has an outcome; returns the messages of the engine's failures.

        Raises:
            BudgetSpent, EngineUnusable: nothing more is answered; drafts without an outcome stay open.
        """
        failures: list[str] = []
        waiting = list(drafts)
        for turn in range(self.config.repairs + 1):
            for draft, answer in zip(waiting, self._ask(waiting), strict=True):
                if isinstance(answer, EngineFailure):
                    failures.append(str(answer))
                    self._finish(draft, GateResult("infra_failure", (str(answer),)))
                    continue
                self._take(draft, answer, is_last=turn == self.config.repairs)
            waiting = [draft for draft in waiting if draft.attempt.outcome is None]
            if not waiting:
                break
            self.folder.note(draft.attempt for draft in waiting)
        return failures

    def _ask(self, drafts: Sequence[_Draft]) -> list[ChatAnswer | EngineFailure]:
        """One answer per draft. A failed batch is repeated one by one, so that one failed request does not affect the others; once the
        engine is gone, the other drafts get the last failure."""
        requests = [self._request(draft) for draft in drafts]
        try:
            return list(self.engine.chat(requests))
        except EngineFailure as failure:
            if len(requests) == 1:
                return [failure]
        answers: list[ChatAnswer | EngineFailure] = []
        for request in requests:
            try:
                answers += self.engine.chat([request])
            except EngineFailure as failure:
                answers.append(failure)
                if len(answers) >= _MAX_FAILURES and all(isinstance(one, EngineFailure) for one in answers[-_MAX_FAILURES:]):
                    return answers + [failure] * (len(requests) - len(answers))
        return answers

    def _request(self, draft: _Draft) -> ChatRequest:
        config = self.config
        return ChatRequest((*draft.opening, *draft.repair), (), config.temperature, config.max_tokens, draft.attempt.order.seed)

    def _take(self, draft: _Draft, answer: ChatAnswer, *, is_last: bool) -> None:
        """Checks an answer; keeps its spec, or prepares the repair request."""
        text, task = answer.message.content or "", self.orders.cluster
        result = check_answer(text, self._known, self.config.gate) if task is None else task.check(text, self.config.gate)
        draft.attempt = _add_usage(draft.attempt, answer)
        if result.outcome == "kept" or is_last:
            self._finish(draft, result)
            return
        was_cut = answer.finish_reason == "length"
        values = {"outcome": result.outcome, "problems": result.problems, "was_cut": was_cut, "max_tokens": self.config.max_tokens}
        draft.repair = (Message(role="assistant", content=answer.message.content or ""), prompt("spec_writer_repair").messages(**values)[1])

    def _finish(self, draft: _Draft, result: GateResult) -> None:
        draft.attempt = draft.attempt.model_copy(
            update={
                "outcome": result.outcome,
                "engine": self.engine.name,
                "prompts": dict(versions(*(PROMPTS if self.orders.cluster is None else CLUSTER_PROMPTS))),
                "problems": result.problems,
                "tools": len(result.world.tools) if result.world is not None else 0,
                "intents": result.intents,
                "likest": result.most_similar[0],
                "likeness": round(result.most_similar[1], 3),
            }
        )
        if result.outcome != "kept":
            self.folder.note([draft.attempt])
            return
        assert result.world is not None
        draft.attempt = self.folder.keep(draft.attempt, result)
        self._known[draft.attempt.file] = signatures_of(result.world)
        self.orders.show(draft.attempt.file)


def _add_usage(attempt: Attempt, answer: ChatAnswer) -> Attempt:
    return attempt.model_copy(
        update={
            "tries": attempt.tries + 1,
            "prompt_tokens": attempt.prompt_tokens + answer.prompt_tokens,
            "completion_tokens": attempt.completion_tokens + answer.completion_tokens,
            "usd": attempt.usd + answer.usd,
        }
    )
