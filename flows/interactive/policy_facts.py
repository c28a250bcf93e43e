"""Facts about a policy from its store, for a chat: how it was trained, and how it was measured.

One idea: a policy works best in conversations like those that it learned from. Its training stages give their worlds, their language and
their number of user requests. Its held-out rollouts give the requests that it answered correctly.
An engine given by name has no stages, only measurements, if any.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows.interactive.world_repl import Need
from storage.records import Language
from storage.releases.lineage_graph import PROMOTED_POLICY_SQL, chain_sql
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
class Measurement:
    """Success rate of a policy on one held-out set.

    use: the held-out set, such as `eval_in`.
    decoding: greedy or sampled.
    rate, low, high: success rate and its 95 % interval.
    tasks: number of tasks.
    """

    use: str
    decoding: str
    rate: float
    low: float
    high: float
    tasks: int


@dataclass(frozen=True)
class NeedResult:
    """Held-out rollouts of one need: how many there are, and how many succeeded."""

    need: Need
    rollouts: int
    successes: int


@dataclass(frozen=True)
class PolicyFacts:
    """Facts about a policy.

    worlds: worlds of its training tasks; empty if the store did not train it.
    language: language of its training tasks.
    requests: most user requests of a training conversation; None: unknown.
    is_promoted: whether it is the policy that passed the gate last.
    measurements: its success rates on held-out sets.
    """

    worlds: tuple[str, ...] = ()
    language: Language = "en"
    requests: int | None = None
    is_promoted: bool = False
    measurements: tuple[Measurement, ...] = ()


def read_policy_facts(store: Store, policy_id: str) -> PolicyFacts:
    """Read the facts about a policy. If no stage of the store trained it, only its measurements are known."""
    trained = store.query(_TRAINED_SQL, [policy_id])
    worlds, language = trained.row(0) if trained.height else ((), None)
    promoted = store.query(PROMOTED_POLICY_SQL)
    return PolicyFacts(
        worlds=tuple(worlds or ()),
        language=language or "en",
        requests=store.query(_REQUESTS_SQL, [policy_id]).item(),
        is_promoted=bool(promoted.height) and promoted.item() == policy_id,
        measurements=tuple(Measurement(*row) for row in store.query(_MEASURED_SQL, [policy_id]).iter_rows()),
    )


def read_need_results(store: Store, policy_id: str, world: str) -> list[NeedResult]:
    """Results of all held-out rollouts of a policy in a world, one per intent and set of slots."""
    rows = store.query(_ANSWERED_SQL, [policy_id, world]).iter_rows()
    return [NeedResult((intent, frozenset(slots or ())), rollouts, successes) for intent, slots, rollouts, successes in rows]
