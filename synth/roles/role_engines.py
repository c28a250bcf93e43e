"""The roles of synthesis, each scripted or played by a named engine, and their provenance with every trajectory.

Each engine is opened once, for all its roles, and all share one budget. It is checked before the first request, so that a wrong URL, an
unknown model, a refused key or a server without tool calling is reported at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
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
from synth.engines.base import Engine, EngineFailure, check_window, side_by_side
from synth.engines.budget import AskingConfig, Budget
from synth.engines.cache import Answers
from synth.engines.engine_names import ENGINES, EngineUse, engine_named, weights_of
from synth.prompts import prompt, versions
from synth.roles import model_planner, model_roles
from synth.roles.base import Grades, JudgeFailed, JudgeVerdict
from synth.roles.judge_calibration import ASKED, Agreement, Labelled, agreement, passes_checks
from synth.roles.model_planner import ModelPlanner
from synth.roles.model_roles import ASSISTANT_TOKENS, TEMPERATURE, ModelAssistant, ModelJudge, ModelUser
from synth.roles.scripted import TEACHER
from synth.roles.simulate import Simulated, offered_tools, simulate
from synth.roles.user_script import Script, script_of

VERSION = 1
"""Version of the code of model roles (checks, plans, the judge's calibration), without prompts and weights."""
ROLES = ("planner", "user", "assistant", "judge")


class RolesConfig(AskingConfig):
    """Engines of the roles of synthesis, and their budget."""

    planner: str = Field(TEACHER, description="Engine that plans conversations: scripted, openai:MODEL, vllm:MODEL or hf:FOLDER.")
    user: str = Field(TEACHER, description="Engine that plays the user, as above; its messages are checked against its script.")
    assistant: str = Field(
        TEACHER, description="Engine that plays the assistant (the teacher), as above; it sees tools and dialogue, and no plan."
    )
    judge: str = Field(TEACHER, description="Engine that grades what code cannot decide, as above; a language model is measured first.")
    temperature: float = Field(TEMPERATURE, ge=0, le=2, description="Sampling temperature of the assistant and the user; 0 is greedy.")
    answer_tokens: int = Field(ASSISTANT_TOKENS, ge=16, description="Longest message of the assistant, in tokens.")
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
    def _is_known(cls, name: str) -> str:
        kind, _, model = name.partition(":")
        if name == TEACHER or (kind in ENGINES and model):
            return name
        raise ValueError(f"{name!r} is no engine; give scripted, or one of {', '.join(f'{kind}:MODEL' for kind in ENGINES)}")

    @property
    def engines(self) -> Mapping[str, str]:
        """Role -> engine, of the roles that are not scripted."""
        return {role: name for role in ROLES if (name := getattr(self, role)) != TEACHER}

    def identity(self) -> dict[str, Any]:
        """The settings that conversations depend on, without limits and budget; empty if all roles are scripted."""
        engines = self.engines
        if not engines:
            return {}
        weights = {name: version for name in engines.values() if (version := weights_of(name))}
        about = {"version": VERSION, "prompts": prompt_versions(engines), "weights": weights}
        return self.model_dump(mode="json", exclude=set(AskingConfig.model_fields)) | about


_PROMPTS: Mapping[str, tuple[str, ...]] = {
    "planner": (model_planner.PROMPT,),
    "user": (model_roles.USER_PROMPT,),
    "judge": (model_roles.CRITERIA_PROMPT, model_roles.JUDGE_PROMPT),
}
_ANSWER_TOKENS = {"planner": model_planner.MAX_TOKENS, "user": model_roles.USER_TOKENS, "judge": model_roles.JUDGE_TOKENS}
"""Longest answer by role; the assistant's is in the configuration."""


def prompt_versions(roles: Iterable[str]) -> dict[str, str]:
    """Name -> version of the prompts of models in these roles."""
    return dict(versions(*(name for role in roles for name in _PROMPTS.get(role, ()))))


@dataclass(frozen=True)
class RoleEngines:
    """The engine of each role; None: scripted. judge_agreement: the judge's measured agreement with known verdicts."""

    config: RolesConfig = field(default_factory=RolesConfig)
    planner: Engine | None = None
    user: Engine | None = None
    assistant: Engine | None = None
    judge: Engine | None = None
    answers: Answers | None = None
    budget: Budget | None = None
    judge_agreement: Agreement | None = None

    @property
    def is_scripted(self) -> bool:
        return not any((self.planner, self.user, self.assistant, self.judge))

    def begin(self, run: str) -> None:
        """Books further answers to this run; the budget starts with what the run has spent before."""
        if self.answers is not None:
            self.answers.run = run
            if self.budget is not None:
                self.budget.begin(*self.answers.spent_tokens())

    def plans(self, rules: Planner) -> ModelPlanner | None:
        """The model planner, if there is one. rules: the scripted planner, whose rules it follows."""
        return None if self.planner is None else ModelPlanner(self.planner, rules)

    def simulate(self, blueprint: Blueprint) -> Simulated:
        """The conversation of a blueprint.

        Raises:
            BudgetSpent: the budget is used up.
        """
        config, user, assistant, judge = self.config, self.user, self.assistant, self.judge
        script = script_of(blueprint) if user is not None or judge is not None else None

        def grade(_: Blueprint, tools: Sequence[Tool], dialogue: Sequence[Message]) -> JudgeVerdict:
            assert judge is not None and script is not None
            return ModelJudge(judge).grade(request_text(script), tools, dialogue)

        return simulate(
            blueprint,
            user=None if user is None else lambda one: ModelUser(user, script or script_of(one), one.id, temperature=config.temperature),
            assistant=None if assistant is None else lambda one: self._model_assistant(assistant, one.id),
            judge=None if judge is None else grade,
        )

    def grade(self, one: Labelled) -> Grades | None:
        """The judge's grades of a labelled conversation; None if it gave none, or the engine did not answer."""
        assert self.judge is not None
        tools = offered_tools(one.blueprint)
        try:
            return ModelJudge(self.judge).grade(request_text(script_of(one.blueprint)), tools, one.simulated.trajectory.messages).grades
        except (JudgeFailed, EngineFailure):  # a provider may refuse a conversation with an insult
            return None

    def judge_figures(self, split: Sequence[Labelled], progress: Progress) -> list[Figure]:
        """The judge's agreement with labelled conversations: with all, and with those that pass every check by code."""
        grades = side_by_side(self.grade, split, self.config.in_flight, "measuring the judge", progress)
        positions = [at for at, one in enumerate(split) if passes_checks(one)]
        asked_agreement = agreement([split[at] for at in positions], [grades[at] for at in positions])
        return [*agreement(split, grades).figures(), *asked_agreement.figures(ASKED)]

    def _model_assistant(self, engine: Engine, seed: str) -> ModelAssistant:
        config = self.config
        return ModelAssistant(
            engine, seed, temperature=config.temperature, max_tokens=config.answer_tokens, alternatives=config.alternatives
        )


def request_text(script: Script) -> str:
    """What a user wants, as text for the judge: the goal, and the lines of the script."""
    lines = "\n".join(f"  {line.text}" for line in script.lines)
    return f"{script.goal}\nIn the customer's words:\n{lines}"


@contextlib.contextmanager
def open_role_engines(config: RolesConfig, store: Store, logs: Path) -> Iterator[RoleEngines]:
    """The engines of a configuration, checked, for as long as the context lasts. The store keeps their answers.

    logs: folder for the output of servers that are started.

    Raises:
        BadInput: an engine does not exist, does not serve the model, accepts no tools, or has a too short window for its role.
        HeadraceError: a server did not start.
    """
    engine_names = config.engines
    if not engine_names:
        yield RoleEngines(config)
        return
    answers, budget = Answers(store), config.budget()
    with contextlib.ExitStack() as stack:
        stack.callback(answers.close)
        logs.mkdir(parents=True, exist_ok=True)
        shared: dict[str, Any] = {"in_flight": config.in_flight, "timeout_s": config.timeout_s, "answers": answers, "budget": budget}
        engines = {
            name: stack.enter_context(
                engine_named(name, EngineUse(logs / f"engine-{at}.log", tools=name == engine_names.get("assistant"), **shared))
            )
            for at, name in enumerate(sorted(set(engine_names.values())))
        }
        for role, name in engine_names.items():
            longest = max((prompt(one).text for one in _PROMPTS.get(role, ())), key=len, default="")
            check_window(engines[name], [Message(role="system", content=longest)], _ANSWER_TOKENS.get(role, config.answer_tokens))
        planner, user, assistant, judge = (engines.get(engine_names.get(role, "")) for role in ROLES)
        yield RoleEngines(config, planner, user, assistant, judge, answers, budget)


def provenance_frame(simulated: Sequence[Simulated], engines: RoleEngines) -> pl.DataFrame:
    """Rows of table `provenance`: engines and prompts of the roles, how well the user followed its script, and the judge's grades with its
    measured agreement."""
    roles = {role: getattr(engines.config, role) for role in ROLES}
    prompts = prompt_versions(role for role in ROLES if getattr(engines, role) is not None)
    judge_agreement = engines.judge_agreement if engines.judge is not None else None
    rows = [
        {
            "trajectory_id": one.trajectory.id,
            "roles": canonical_json(roles),
            "prompts": canonical_json(prompts),
            "user_turns": one.user_turns[0],
            "user_adhered": one.user_turns[1],
            **(dataclasses.asdict(one.grades) if one.grades is not None else {}),
            "criteria": canonical_json(dict(one.criteria)) if one.criteria else None,
            "judge_agreement": None if judge_agreement is None or one.grades is None else round(judge_agreement.rate, 6),
            "judge_labelled": None if judge_agreement is None or one.grades is None else judge_agreement.labelled,
            "failure": one.failure or None,
        }
        for one in simulated
    ]
    return pl.DataFrame(rows, schema=TABLES["provenance"].columns)
