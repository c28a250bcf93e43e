"""The spec writer: a language model that writes new domain specs, mends them by what it is told, and varies what was kept.

One idea: an attempt is a conversation that never grows: the first request, the last spec, and what is wrong with it. What passes the gate
(`spec_gate.py`: it compiles, its tasks are admitted, it is like no known world) is kept as a file (`spec_folder.py`) and may be the parent
of a later attempt, which asks for another business, one more entity, a deeper dependency or stricter rules. Attempts go in rounds: as many
at once as are still wanted, each with a seed of its own. An engine that fails or a budget that is spent is no spec's fault: such an attempt
stays open.

Not done here: judging whether a business is realistic, or its Chinese natural; whoever uses a kept spec should read it.
Source: evolve and repair after Evol-Instruct (arXiv 2304.12244), with a compiler and a solver in place of a judge.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from storage.execution import Progress
from storage.files import file_lock
from storage.records import Message
from synth.engines.base import ChatAnswer, ChatRequest, Engine, EngineFailure, check_window, estimated_tokens
from synth.engines.budget import BudgetSpent
from synth.prompts import prompt, versions
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_file, compile_spec
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.writing.similarity import Signatures, signatures_of
from synth.writing.spec_folder import Attempt, Order, SpecFolder, body_of
from synth.writing.spec_gate import Looked, SpecGateConfig, look

CHANGES = ("another_business", "another_entity", "deeper_dependency", "stricter_rules")
"""What a variation is asked for; the words are in `spec_writer_evolve.md`."""
PROMPTS = ("spec_writer", "spec_writer_evolve", "spec_writer_repair")
_STARTER = "tool_library"
"""The domain of the starter, which every prompt shows."""
_GONE = 3
"""An engine that leaves so many requests unanswered, one after the other, is gone."""


class SpecWriterConfig(BaseModel):
    """How specs are asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repairs: int = Field(4, ge=0, le=20, description="How often a spec is sent back with what is wrong with it.")
    attempts_per_spec: int = Field(4, ge=1, le=100, description="Attempts at most for each spec that is wanted.")
    at_once: int = Field(16, ge=1, le=1024, description="Attempts that are under way at once.")
    examples: int = Field(1, ge=0, le=4, description="Specs shown beside the starter, of those given and those kept.")
    evolve_share: float = Field(0.5, ge=0, le=1, description="Share of attempts that vary a kept or given spec, once there is one.")
    temperature: float = Field(0.8, ge=0, le=2, description="Of the model's sampling.")
    max_tokens: int = Field(8192, ge=256, description="Of an answer; a spec takes 3,000 to 6,000.")
    gate: SpecGateConfig = Field(SpecGateConfig(), description="What a spec must reach to be kept.")


@dataclass(frozen=True, slots=True)
class Example:
    """A spec that compiles, to be shown to the model."""

    name: str
    text: str
    domain: str
    signatures: Signatures


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. stopped: why there are fewer than were wanted, empty where there are not."""

    folder: SpecFolder
    stopped: str


def example_of(path: Path) -> Example:
    """A spec file, to be shown.

    Raises:
        SpecError: it does not compile; the message names the file.
    """
    world = compile_file(path)
    return Example(str(path), body_of(path.read_text(encoding="utf-8")), world.domain.name, signatures_of(world))


def starter_text() -> str:
    return files("synth.worlds.declarative").joinpath("starter.yaml").read_text(encoding="utf-8")


def known_worlds(like: Sequence[Example]) -> dict[str, Signatures]:
    """Every world that a new spec must differ from, but for those of its folder: shipped, registered, the starter, the examples."""
    starter = compile_spec(parse_text(starter_text()))
    known = {name: signatures_of(WORLDS[name]) for name in WORLDS.names()}
    return {**known, _STARTER: signatures_of(starter), **{each.name: each.signatures for each in like}}


def write_specs(
    engine: Engine,
    out: Path,
    wanted: int,
    *,
    like: Sequence[Example] = (),
    about: str = "",
    seed: int = 0,
    config: SpecWriterConfig | None = None,
    progress: Progress = lambda label, done, total: None,
) -> Ended:
    """Goes on until a folder has as many kept specs as are wanted, or may not go on; every attempt is in the folder's report.

    Args:
        wanted: kept specs of the folder, those of earlier runs counted.
        like: specs to begin with: shown as examples, and varied. about: the business or area that is wanted, any text; empty for any.

    Raises:
        BadInput: the folder's report cannot be read; no spec fits the model's window. Busy: another process writes into the folder.
    """
    with file_lock(out / ".lock", wait_s=1.0):
        config = config or SpecWriterConfig()
        desk = _Desk(SpecFolder(out), like, config)
        check_window(engine, desk.opening(Order(number=0, seed=0, about=about)), config.max_tokens)
        return Ended(desk.folder, _Writer(engine, desk, config, known_worlds(like)).run(wanted, about, seed, progress))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of a run, before it. missing: specs; attempts: that may be made; prompt_tokens: of a first request; least_tokens: where every first
    answer is kept; most_tokens: where nothing ever is. Tokens are guessed from characters."""

    missing: int
    attempts: int
    prompt_tokens: int
    least_tokens: int
    most_tokens: int
    opening: tuple[Message, ...]


def estimate(
    out: Path, wanted: int, *, like: Sequence[Example] = (), about: str = "", seed: int = 0, config: SpecWriterConfig | None = None
) -> Estimate:
    """What `write_specs` would ask and spend at most. Asks nothing, writes nothing.

    Raises:
        BadInput: as there.
    """
    config = config or SpecWriterConfig()
    desk = _Desk(SpecFolder(out), like, config)
    missing = max(0, wanted - len(desk.folder.kept()))
    openings = [desk.opening(attempt.order) for attempt in desk.next_round(wanted, about, seed)] if missing else []
    first = max((sum(estimated_tokens(message.content or "") for message in opening) for opening in openings), default=0)
    spec = estimated_tokens(starter_text())
    attempts = desk.left(wanted) if missing else 0
    most = attempts * (config.repairs + 1) * (first + 2 * config.max_tokens)
    return Estimate(missing, attempts, first, min(missing, attempts) * (first + spec), most, openings[0] if openings else ())


class _Desk:
    """What attempts are made from: the specs that can be shown, and which attempt comes next."""

    def __init__(self, folder: SpecFolder, like: Sequence[Example], config: SpecWriterConfig) -> None:
        self.folder, self._config = folder, config
        self._shown: dict[str, Example] = {each.name: each for each in like}
        for attempt in folder.kept():
            self.show(attempt.file)
        self._starter = starter_text().strip()

    def show(self, file: str) -> None:
        """Lets a kept spec be an example and a parent."""
        self._shown[file] = replace(example_of(self.folder.path / file), name=file)

    def left(self, wanted: int) -> int:
        """Attempts that may still be made for so many specs."""
        return len(self._open()) + len(self._numbers(wanted))

    def next_round(self, wanted: int, about: str, seed: int) -> list[Attempt]:
        """As many attempts as specs are missing, those that are open first; none where none may be made any more."""
        count = min(wanted - len(self.folder.kept()), self._config.at_once)
        found = self._open()[:count]
        return [*found, *(Attempt(order=self._order(number, about, seed)) for number in self._numbers(wanted)[: count - len(found)])]

    def opening(self, order: Order) -> tuple[Message, ...]:
        """The first request of an attempt."""
        limit = round(100 * self._config.gate.most_alike)
        values = {"starter": self._starter, "most_alike": limit, "about": order.about, "known": order.known}
        examples = [self._shown[name].text.strip() for name in order.examples]
        system, new = prompt("spec_writer").messages(**values, examples=examples)
        if not order.parent:
            return system, new
        parent = self._shown[order.parent].text.strip()
        return system, prompt("spec_writer_evolve").messages(**values, parent=parent, change=order.change)[1]

    def _open(self) -> list[Attempt]:
        """Attempts that were begun, as long as all that their prompts show is still there."""
        begun = [attempt for attempt in self.folder.attempts if attempt.outcome is None]
        return [each for each in begun if {*each.order.examples, each.order.parent} <= {*self._shown, ""}]

    def _numbers(self, wanted: int) -> list[int]:
        """Of attempts that were not begun."""
        begun = {attempt.order.number for attempt in self.folder.attempts}
        return [number for number in range(wanted * self._config.attempts_per_spec) if number not in begun]

    def _order(self, number: int, about: str, seed: int) -> Order:
        rng = random.Random(f"spec/{seed}/{number}")
        own, there = rng.getrandbits(62), sorted(self._shown)
        domains = tuple(sorted({*(each.domain for each in self._shown.values()), *WORLDS.names(), _STARTER}))
        if there and rng.random() < self._config.evolve_share:
            return Order(number=number, seed=own, about=about, parent=rng.choice(there), change=rng.choice(CHANGES), known=domains)
        examples = tuple(rng.sample(there, min(self._config.examples, len(there))))
        return Order(number=number, seed=own, about=about, examples=examples, known=domains)


@dataclass(slots=True)
class _Draft:
    """An attempt that is under way. opening: its first request. said: the last answer and what was wrong with it."""

    attempt: Attempt
    opening: tuple[Message, ...]
    said: tuple[Message, ...] = ()
    looked: Looked | None = None


class _Writer:
    def __init__(self, engine: Engine, desk: _Desk, config: SpecWriterConfig, known: Mapping[str, Signatures]) -> None:
        self.engine, self.desk, self.config = engine, desk, config
        self.folder, self._known = desk.folder, {**known, **desk.folder.signatures()}

    def run(self, wanted: int, about: str, seed: int, progress: Progress) -> str:
        """Rounds until enough is kept. Returns why it stopped before, or nothing."""
        while (missing := wanted - len(self.folder.kept())) > 0:
            progress("write specs", wanted - missing, wanted)
            attempts = self.desk.next_round(wanted, about, seed)
            if not attempts:
                return f"{wanted - missing} of {wanted} specs kept, and no attempt is left; the table says what was wrong with the others"
            self.folder.note(attempts)
            try:
                failures = self._round([_Draft(attempt, self.desk.opening(attempt.order)) for attempt in attempts])
            except BudgetSpent as spent:
                return str(spent)
            if len(failures) == len(attempts):
                return f"the engine failed: {failures[0]}; the same command continues"
        progress("write specs", wanted, wanted)
        return ""

    # ---- a round --------------------------------------------------------------------------------------------------------------

    def _round(self, drafts: Sequence[_Draft]) -> list[str]:
        """Asks and mends until every draft is settled; returns the engine's failures, a text each.

        Raises:
            BudgetSpent: nothing more may be asked; what was settled before is kept, the rest stays open.
        """
        failures: list[str] = []
        waiting = list(drafts)
        for turn in range(self.config.repairs + 1):
            for draft, answer in zip(waiting, self._asked(waiting), strict=True):
                if isinstance(answer, EngineFailure):
                    failures.append(str(answer))
                    self._settle(draft, Looked("infra_failure", (str(answer),)))
                    continue
                self._take(draft, answer, is_last=turn == self.config.repairs)
            waiting = [draft for draft in waiting if draft.attempt.outcome is None]
            if not waiting:
                break
            self.folder.note(draft.attempt for draft in waiting)
        return failures

    def _asked(self, drafts: Sequence[_Draft]) -> list[ChatAnswer | EngineFailure]:
        """One answer a draft. A batch that failed is asked one by one, so that one request's failure is not the others', until the engine
        is gone: what is left then has failed as the last did."""
        requests = [self._request(draft) for draft in drafts]
        try:
            return list(self.engine.chat(requests))
        except EngineFailure as failure:
            if len(requests) == 1:
                return [failure]
        found: list[ChatAnswer | EngineFailure] = []
        for request in requests:
            try:
                found += self.engine.chat([request])
            except EngineFailure as failure:
                found.append(failure)
                if len(found) >= _GONE and all(isinstance(one, EngineFailure) for one in found[-_GONE:]):
                    return found + [failure] * (len(requests) - len(found))
        return found

    def _request(self, draft: _Draft) -> ChatRequest:
        config = self.config
        return ChatRequest((*draft.opening, *draft.said), (), config.temperature, config.max_tokens, draft.attempt.order.seed)

    def _take(self, draft: _Draft, answer: ChatAnswer, *, is_last: bool) -> None:
        """Looks at an answer: keeps its spec, or gets ready to send it back."""
        looked = look(answer.message.content or "", self._known, self.config.gate)
        draft.attempt = _counted(draft.attempt, answer)
        if looked.outcome == "kept" or is_last:
            self._settle(draft, looked)
            return
        was_cut = answer.finish_reason == "length"
        values = {"outcome": looked.outcome, "problems": looked.problems, "was_cut": was_cut, "max_tokens": self.config.max_tokens}
        draft.said = (Message(role="assistant", content=answer.message.content or ""), prompt("spec_writer_repair").messages(**values)[1])

    def _settle(self, draft: _Draft, looked: Looked) -> None:
        draft.attempt = draft.attempt.model_copy(
            update={
                "outcome": looked.outcome,
                "engine": self.engine.name,
                "prompts": dict(versions(*PROMPTS)),
                "problems": looked.problems,
                "tools": len(looked.world.tools) if looked.world is not None else 0,
                "intents": looked.intents,
                "likest": looked.likest[0],
                "likeness": round(looked.likest[1], 3),
            }
        )
        if looked.outcome != "kept":
            self.folder.note([draft.attempt])
            return
        assert looked.world is not None
        draft.attempt = self.folder.keep(draft.attempt, looked)
        self._known[draft.attempt.file] = signatures_of(looked.world)
        self.desk.show(draft.attempt.file)


def _counted(attempt: Attempt, answer: ChatAnswer) -> Attempt:
    return attempt.model_copy(
        update={
            "tries": attempt.tries + 1,
            "prompt_tokens": attempt.prompt_tokens + answer.prompt_tokens,
            "completion_tokens": attempt.completion_tokens + answer.completion_tokens,
            "usd": attempt.usd + answer.usd,
        }
    )
