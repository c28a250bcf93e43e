"""What a store says of a policy that somebody is about to talk to: how it was trained, and what it was measured at.

One idea: a policy is at home in conversations like those that it learned from. So the stages behind it say in which worlds and language
they were, and with how many requests of the user each; its held-out rollouts say which requests it has answered rightly.
Of an engine by its name there are no stages: only what was measured, if anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows.interactive.world_repl import Need
from storage.lineage_graph import PROMOTED_POLICY_SQL, chain_sql
from storage.records import Language
from storage.store import Store

_TRAINED_SQL = f"""{chain_sql("SELECT ? AS policy_id")}
    SELECT json_extract_string(s.spec, '$.worlds[*]') AS worlds, json_extract_string(s.spec, '$.language') AS language
    FROM trained JOIN policies USING (policy_id) JOIN stages s USING (stage_id) ORDER BY depth LIMIT 1"""
_REQUESTS_SQL = f"""{chain_sql("SELECT ? AS policy_id")},
    learned AS (SELECT DISTINCT i.item_id FROM trained JOIN policies USING (policy_id) JOIN stages s USING (stage_id)
                JOIN release_items i ON i.release_id = s.release_id AND i.split = s.split),
    talks AS (SELECT trajectory_id AS id, messages FROM trajectories UNION ALL SELECT rollout_id, messages FROM rollouts)
    SELECT max(len(list_filter(json_extract_string(messages, '$[*].role'), lambda role: role = 'user')))
    FROM talks WHERE id IN (SELECT item_id FROM learned)"""
_MEASURED_SQL = """SELECT e.use, e.decoding, e.rate, e.low, e.high, e.tasks FROM evaluations e JOIN parts USING (part_id)
    WHERE e.policy_id = ? AND e.facet = 'all'
    QUALIFY rank() OVER (PARTITION BY e.use, e.decoding ORDER BY committed_at DESC, e.evaluation_id) = 1 ORDER BY e.use, e.decoding"""
_ANSWERED_SQL = """SELECT t.intent, list_sort(json_keys(t.spec, '$.slots')) AS slots, count(*) AS rollouts,
      count(*) FILTER (r.outcome = 'success') AS successes
    FROM rollouts r JOIN tasks t USING (task_id)
    WHERE r.policy_id = ? AND r.purpose LIKE 'eval%' AND t.world = ? AND r.outcome IN ('success', 'policy_failure')
    GROUP BY ALL ORDER BY t.intent, slots"""


@dataclass(frozen=True)
class Measured:
    """Success on one held-out set with one decoding, with its 95 % interval."""

    use: str
    decoding: str
    rate: float
    low: float
    high: float
    tasks: int


@dataclass(frozen=True)
class Answered:
    """How often requests with one intent and these slots were answered rightly, of held-out rollouts."""

    need: Need
    rollouts: int
    successes: int


@dataclass(frozen=True)
class Schooling:
    """worlds, language: of the tasks that it was trained on; no worlds where it was not trained here. requests: of one conversation, at
    most; None where nobody knows. is_promoted: whether it is the one that passed the gate last."""

    worlds: tuple[str, ...] = ()
    language: Language = "en"
    requests: int | None = None
    is_promoted: bool = False
    measured: tuple[Measured, ...] = ()


def schooling(store: Store, policy_id: str) -> Schooling:
    """What is known of a policy; nothing but its measurements where no stage of the store made it."""
    trained = store.query(_TRAINED_SQL, [policy_id])
    worlds, language = trained.row(0) if trained.height else ((), None)
    promoted = store.query(PROMOTED_POLICY_SQL)
    return Schooling(
        worlds=tuple(worlds or ()),
        language=language or "en",
        requests=store.query(_REQUESTS_SQL, [policy_id]).item(),
        is_promoted=bool(promoted.height) and promoted.item() == policy_id,
        measured=tuple(Measured(*row) for row in store.query(_MEASURED_SQL, [policy_id]).iter_rows()),
    )


def answered(store: Store, policy_id: str, world: str) -> list[Answered]:
    """By intent and slots, what the policy was asked in this world when it was measured last, or before."""
    rows = store.query(_ANSWERED_SQL, [policy_id, world]).iter_rows()
    return [Answered((intent, frozenset(slots or ())), rollouts, successes) for intent, slots, rollouts, successes in rows]
