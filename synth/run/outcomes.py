"""Why proposals of a run were not accepted: reasons in words, each with an example, and counts of a stored run.

One idea: a reason is a short key in the store, and becomes words here alone, for the warnings of a run and for what a command shows at its
end. The example of a reason is its first proposal. Goals of one conversation have their own checks (`goal_1.facts`); they count as one.

It judges nothing; `headrace explain` shows an example with what was expected and what was there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from storage.records import Outcome
from storage.store import Store
from storage.tables import LATEST_RUN
from synth.conversations.failed_checks import DEMANDS

_EXAMPLE_LENGTH = 80
_UNPLANNED = "unplanned"
_OUTCOMES = {
    Outcome.INFRA_FAILURE: "the engine did not answer",
    Outcome.USER_FAILURE: "the simulated user left its script",
    Outcome.TOOL_FAILURE: "a tool could not be executed",
    Outcome.JUDGE_FAILURE: "the judge gave no grades",
}
_PLANS = {
    "no_recipe": "no template fits the requested domain, modes and complexity",
    "model_plan": "the planner gave no valid plan, also after its repairs",
    "misfit": "no values fit the intent",
    "repeated": "the same conversation was drawn before",
    "not_allowed": "all values that were drawn are set aside for other uses",
    "goals_interfere": "the goals spoil each other",
    "outside_cluster": "it needs a tool outside its cluster",
    "call_refused": "the world refused a planned call",
    "static_checks": "the plan is not consistent",
}


@dataclass(frozen=True, slots=True)
class Example:
    """A proposal that stands for others. id: for `headrace explain`. text: why it failed, else its first words; at most 80 characters."""

    id: str
    text: str

    def __str__(self) -> str:
        return f"{self.id}: “{self.text}”"


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """The proposals of a run with one outcome and reason.

    outcome: of the conversation; `unplanned` if there is none.
    reason: key of the first check that failed, or why there is no conversation; empty if accepted.
    proposals, tokens, usd: their number, and what they cost.
    """

    outcome: str
    reason: str
    proposals: int
    tokens: int
    usd: float
    example: Example


def reason_key(reason: str) -> str:
    """The reason without its goal and turn."""
    return reason.rpartition(".")[2]


def reason_in_words(key: str) -> str:
    """What a reason means, with its key where it is a check or the cause of a missing plan."""
    if key in _OUTCOMES:
        return _OUTCOMES[Outcome(key)]
    if key in DEMANDS:
        return f"failed check {key} ({DEMANDS[key]})"
    return f"no plan ({_PLANS.get(key, key.replace('_', ' '))})"


def conversation_example(id: str, messages: Sequence[Any], failure: str | None) -> Example:
    """The example of a conversation. messages: records or dicts of OpenAI's form. failure: of an engine or a role, if there was one."""
    texts = [message if isinstance(message, dict) else message.to_openai() for message in messages]
    first = next((message["content"] or "" for message in texts if message["role"] == "user"), "")
    return Example(id, _shorten(failure or first))


def unplanned_example(id: str, domain: str, family: str | None, band: str | None) -> Example:
    """The example of a proposal without a conversation: the requested cell."""
    return Example(id, _shorten(f"{domain}, {family}, {band} complexity"))


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _EXAMPLE_LENGTH else f"{line[: _EXAMPLE_LENGTH - 3]}..."


_COUNTS = f"""
    SELECT coalesce(t.outcome, '{_UNPLANNED}') AS outcome, regexp_replace(coalesce(d.reason, ''), '^.*\\.', '') AS reason,
      count(*) AS proposals, coalesce(sum(t.prompt_tokens + t.completion_tokens), 0)::BIGINT AS tokens,
      round(coalesce(sum(t.cost_usd), 0), 4) AS usd,
      arg_min({{'id': coalesce(t.trajectory_id, d.blueprint_id), 'domain': d.domain, 'family': d.mode_family, 'band': d.complexity_band}},
              d.round * 1000000 + d.position) AS example
    FROM decisions d LEFT JOIN trajectories t ON t.blueprint_id = d.blueprint_id AND t.cluster_id IS NOT NULL
    WHERE d.run = {LATEST_RUN.format(table="decisions")}
    GROUP BY ALL ORDER BY proposals DESC, outcome, reason"""
"""Experts of tasks have a blueprint too, and no cluster."""


def count_outcomes(store: Store) -> list[OutcomeCount]:
    """The outcomes of the last run's proposals, the most frequent first."""
    rows = store.query(_COUNTS).to_dicts()
    ids = [row["example"]["id"] for row in rows]
    played = store.query(
        """SELECT trajectory_id, messages, failure FROM trajectories LEFT JOIN provenance USING (trajectory_id)
           WHERE trajectory_id IN (SELECT unnest(?::VARCHAR[]))""",
        [ids],
    )
    examples = {id: conversation_example(id, json.loads(messages), failure) for id, messages, failure in played.iter_rows()}
    return [OutcomeCount(**row | {"example": examples.get(row["example"]["id"]) or unplanned_example(**row["example"])}) for row in rows]


def count_kinds(store: Store) -> dict[str, int]:
    """Kind (`act`, `look-up`, `refusal`) -> number of the last run's accepted conversations: a refusal declines all that is asked, an act
    leaves the state changed."""
    kinds = store.query(
        f"""WITH goals AS (SELECT json_extract(spec, '$.goals[*]') AS goals
              FROM decisions d JOIN blueprints b USING (blueprint_id)
              WHERE d.run = {LATEST_RUN.format(table="decisions")} AND d.status = 'accepted')
            SELECT CASE WHEN len(list_filter(goals, lambda g: NOT (g ->> 'is_abandoned')::BOOLEAN AND g ->> 'refusal' IS NULL)) = 0
                THEN 'refusal' WHEN goals[-1] ->> 'changes' <> '{{}}' THEN 'act' ELSE 'look-up' END AS kind, count(*) AS n
            FROM goals WHERE len(goals) > 0 GROUP BY kind"""
    )
    return dict(kinds.iter_rows())
