"""Who plays which role: `scripted`, or an engine by its name; and what is kept of it with every trajectory.

Engines are opened once, however many roles they play, share one budget, and are looked at before anything is spent: a wrong URL, a model
that is not served, a key that is refused or a server without tool calling is said at the door.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import Field, field_validator

from storage.execution import Progress
from storage.records import Message, Tool, canonical_json
from storage.store import Store
from storage.tables import TABLES
from synth.blueprints.blueprint import Blueprint
from synth.blueprints.diversity import Figure
from synth.blueprints.planner import Planner
from synth.engines.base import Engine, EngineFailure, check_window
from synth.engines.budget import AskingConfig, Budget
from synth.engines.cache import Answers
from synth.engines.engine_names import ENGINES, EngineUse, engine_named, weights_of
from synth.engines.thread_map import side_by_side
from synth.prompts import prompt, versions
from synth.roles import model_judge, model_planner, model_user
from synth.roles.base import Graded, Grades, JudgeFailed
from synth.roles.judge_calibration import ASKED, Agreement, Labelled, agreement, reaching
from synth.roles.model_assistant import MAX_TOKENS, TEMPERATURE, ModelAssistant
from synth.roles.model_judge import ModelJudge
from synth.roles.model_planner import ModelPlanner
from synth.roles.model_user import ModelUser
from synth.roles.scripted import TEACHER
from synth.roles.simulate import Simulated, offered_tools, simulate
from synth.roles.user_script import Script, script_of

VERSION = 1
"""Of all that decides how models play their roles, prompts and weights apart: checks, plans, flaws planted for the judge."""
ROLES = ("planner", "user", "assistant", "judge")


class RolesConfig(AskingConfig):
    """Who plays the roles of synthesis, and what that may cost."""

    planner: str = Field(TEACHER, description="Engine that plans conversations: scripted, openai:MODEL, vllm:MODEL or hf:FOLDER.")
    user: str = Field(TEACHER, description="Engine that plays the user, as above; what it says is checked against its script.")
    assistant: str = Field(
        TEACHER, description="Engine that plays the assistant (the teacher), as above; it sees tools and dialogue, and no plan."
    )
    judge: str = Field(TEACHER, description="Engine that grades what code cannot decide, as above; a language model is measured first.")
    temperature: float = Field(TEMPERATURE, ge=0, le=2, description="Sampling temperature of the assistant and the user; 0 is greedy.")
    answer_tokens: int = Field(MAX_TOKENS, ge=16, description="Longest message of the assistant, in tokens.")
    alternatives: int = Field(
        0,
        ge=0,
        le=20,
        description="Likeliest tokens at each position of the assistant whose log-probabilities are kept, for entropies; 0 keeps none.",
    )
    judge_labelled: int = Field(
        40, ge=2, description="Conversations with a known verdict by which a language model's judgement is measured."
    )

    @field_validator(*ROLES)
    @classmethod
    def _is_of_a_kind(cls, name: str) -> str:
        kind, _, model = name.partition(":")
        if name == TEACHER or (kind in ENGINES and model):
            return name
        raise ValueError(f"{name!r} is no player of a role; give scripted, or one of {', '.join(f'{kind}:MODEL' for kind in ENGINES)}")

    @property
    def engines(self) -> Mapping[str, str]:
        """Role -> engine, of the roles that are not scripted."""
        return {role: name for role in ROLES if (name := getattr(self, role)) != TEACHER}

    def identity(self) -> dict[str, Any]:
        """What conversations depend on: not how fast or how far engines are asked; nothing where all roles are scripted."""
        named = self.engines
        if not named:
            return {}
        weights = {name: version for name in named.values() if (version := weights_of(name))}
        about = {"version": VERSION, "prompts": prompts_of(named), "weights": weights}
        return self.model_dump(mode="json", exclude=set(AskingConfig.model_fields)) | about


_PROMPTS: Mapping[str, tuple[str, ...]] = {
    "planner": (model_planner.PROMPT,),
    "user": (model_user.PROMPT,),
    "judge": (model_judge.CRITERIA_PROMPT, model_judge.PROMPT),
}

_ANSWERS: Mapping[str, int] = {
    "planner": model_planner.MAX_TOKENS,
    "user": model_user.MAX_TOKENS,
    "judge": model_judge.MAX_TOKENS,
}
"""Tokens that an answer of a role may take; the assistant's are a setting."""


def prompts_of(roles: Iterable[str]) -> dict[str, str]:
    """The prompts that models in these roles are shown, with their versions."""
    return dict(versions(*(name for role in roles for name in _PROMPTS.get(role, ()))))


@dataclass(frozen=True)
class RoleEngines:
    """The engines that play roles; None: scripted. judged: what the judge's verdicts are worth."""

    config: RolesConfig = field(default_factory=RolesConfig)
    planner: Engine | None = None
    user: Engine | None = None
    assistant: Engine | None = None
    judge: Engine | None = None
    answers: Answers | None = None
    budget: Budget | None = None
    judged: Agreement | None = None

    @property
    def is_scripted(self) -> bool:
        return not any((self.planner, self.user, self.assistant, self.judge))

    def begin(self, run: str) -> None:
        """From now on the cast plays for this run: its answers are noted as that run's, whose budget begins with what it has spent."""
        if self.answers is not None:
            self.answers.run = run
            if self.budget is not None:
                self.budget.begin(*self.answers.spent())

    def plans(self, rules: Planner) -> ModelPlanner | None:
        """The planner that is a model, if there is one, by the rules of the scripted one."""
        return None if self.planner is None else ModelPlanner(self.planner, rules)

    def simulate(self, blueprint: Blueprint) -> Simulated:
        """The conversation of a blueprint, played by this cast.

        Raises:
            BudgetSpent: nothing more may be asked.
        """
        user, assistant, judge = self.user, self.assistant, self.judge
        script = script_of(blueprint) if user is not None or judge is not None else None

        def grade(_: Blueprint, tools: Sequence[Tool], dialogue: Sequence[Message]) -> Graded:
            assert judge is not None and script is not None
            return ModelJudge(judge).grade(wanted(script), tools, dialogue)

        return simulate(
            blueprint,
            user=None if user is None else lambda one: self.speaker(user, script or script_of(one), one.id),
            assistant=None if assistant is None else lambda one: self.teacher(assistant, one.id),
            judge=None if judge is None else grade,
        )

    def grade(self, one: Labelled) -> Grades | None:
        """The judge's grades of a labelled conversation; None where it gave none, or was not answered."""
        assert self.judge is not None
        tools = offered_tools(one.blueprint)
        try:
            return ModelJudge(self.judge).grade(wanted(script_of(one.blueprint)), tools, one.simulated.trajectory.messages).grades
        except (JudgeFailed, EngineFailure):  # a provider may refuse to look at what was planted
            return None

    def judge_figures(self, split: Sequence[Labelled], progress: Progress) -> list[Figure]:
        """The judge's agreement with labelled conversations: with all, and with those that it would be asked about in earnest."""
        said = side_by_side(self.grade, split, self.config.in_flight, "measuring the judge", progress)
        asked = reaching(split)
        earnest = agreement([split[at] for at in asked], [said[at] for at in asked])
        return [*agreement(split, said).figures(), *earnest.figures(ASKED)]

    def speaker(self, engine: Engine, script: Script, seed: str) -> ModelUser:
        return ModelUser(engine, script, seed, temperature=self.config.temperature)

    def teacher(self, engine: Engine, seed: str) -> ModelAssistant:
        own = self.config
        return ModelAssistant(engine, seed, temperature=own.temperature, max_tokens=own.answer_tokens, alternatives=own.alternatives)


def wanted(script: Script) -> str:
    """What a user is after, and says: what a judge's criteria are set for."""
    said = "\n".join(f"  {line.text}" for line in script.lines)
    return f"{script.goal}\nIn the customer's words:\n{said}"


@contextlib.contextmanager
def open_role_engines(config: RolesConfig, store: Store, logs: Path) -> Iterator[RoleEngines]:
    """The cast of a configuration, its engines looked at, for as long as the context lasts; what they answer is kept in the store.

    logs: folder for the output of servers that are started.

    Raises:
        BadInput: an engine that is not there, does not serve the model, takes no tools, or has no room for what its role is asked and says.
        HeadraceError: a server did not come up.
    """
    named = config.engines
    if not named:
        yield RoleEngines(config)
        return
    answers, budget = Answers(store), config.budget()
    with contextlib.ExitStack() as stack:
        stack.callback(answers.close)
        logs.mkdir(parents=True, exist_ok=True)
        how: dict[str, Any] = {"in_flight": config.in_flight, "timeout_s": config.timeout_s, "answers": answers, "budget": budget}
        calling = named.get("assistant")
        engines = {
            name: stack.enter_context(engine_named(name, EngineUse(logs / f"engine-{at}.log", tools=name == calling, **how)))
            for at, name in enumerate(sorted(set(named.values())))
        }
        for role, name in named.items():
            longest = max((prompt(one).text for one in _PROMPTS.get(role, ())), key=len, default="")
            check_window(engines[name], [Message(role="system", content=longest)], _ANSWERS.get(role, config.answer_tokens))
        planner, user, assistant, judge = (engines.get(named.get(role, "")) for role in ROLES)
        yield RoleEngines(config, planner, user, assistant, judge, answers, budget)


def provenance_frame(made: Sequence[Simulated], cast: RoleEngines) -> pl.DataFrame:
    """Rows of table `provenance`: who played what in these conversations, told what, and how well it can be trusted. Grades are a model's,
    with what they are worth, or the scripted judge's."""
    roles = {role: getattr(cast.config, role) for role in ROLES}
    shown = prompts_of(role for role in ROLES if getattr(cast, role) is not None)
    judged = cast.judged if cast.judge is not None else None
    rows = [
        {
            "trajectory_id": one.trajectory.id,
            "roles": canonical_json(roles),
            "prompts": canonical_json(shown),
            "user_turns": one.user_turns[0],
            "user_adhered": one.user_turns[1],
            "planning": None if one.grades is None else one.grades.planning,
            "fidelity": None if one.grades is None else one.grades.fidelity,
            "presentation": None if one.grades is None else one.grades.presentation,
            "criteria": canonical_json(dict(one.criteria)) if one.criteria else None,
            "judge_agreement": None if judged is None or one.grades is None else round(judged.rate, 6),
            "judge_labelled": None if judged is None or one.grades is None else judged.labelled,
            "failure": one.failure or None,
        }
        for one in made
    ]
    return pl.DataFrame(rows, schema=TABLES["provenance"].columns)
