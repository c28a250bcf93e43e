"""An index of the conversations of a store, synthesised ones and draws of policies, with what was said in them (`store_index.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.viewer.indexes.facets import Facet, count_facets
from flows.viewer.indexes.store_index import StoreIndex
from flows.viewer.task_history import FAULTS
from storage.errors import BadInput
from storage.releases.lineage_graph import POLICY_NAME
from storage.store import Store
from storage.tables import CERTAINTY

FACETS: Mapping[str, tuple[str, ...]] = {
    "trajectories": ("world", "mode", "band", "outcome", "reason", "language", "teacher", "cluster"),
    "draws": ("policy", "purpose", "outcome", "fault", "region", "world", "intent", "difficulty", "language", "division"),
}
"""Kind of conversations -> columns that a search can be narrowed by."""
_ACCEPTED = {"yes": "accepted", "no": "NOT accepted"}
_ORDER = {"trajectories": "complexity DESC NULLS LAST, id", "draws": "policy, purpose, task_id, draw, id"}
_JSON = "CASE WHEN json_valid(messages) THEN messages END"
"""The messages, where DuckDB reads them: the JSON of a policy may hold half a surrogate pair, which it does not."""
_SAID = f"lower(coalesce(array_to_string(json_extract_string({_JSON}, '$[*].content'), chr(10)), messages))"
"""What was said; the whole JSON where it is not read."""
FIRST_REQUEST = f"""left(coalesce(json_extract_string(list_filter(json_extract({_JSON}, '$[*]'),
    lambda one: json_extract_string(one, '$.role') = 'user')[1], '$.content'), messages), 400)"""
"""The first text of the user, as lists show it."""
_WHEN = " ".join(f"""WHEN '{outcome}' THEN '{fault.replace("'", "''")}'""" for outcome, fault in FAULTS.items())
_BUILD_SQL = f"""
CREATE TABLE built.trajectories AS SELECT trajectory_id AS id, world, domain, mode_coarse AS mode, complexity,
  complexity_band AS band, language, teacher, outcome, accepted, reason, cluster_id AS cluster, {FIRST_REQUEST} AS request,
  {_SAID} AS lowered
FROM trajectories ORDER BY {_ORDER["trajectories"]};
CREATE TABLE built.draws AS SELECT r.rollout_id AS id, r.task_id, r.outcome, CASE r.outcome {_WHEN} END AS fault, r.failure,
  r.purpose, r.draw,
  t.world, t.intent, t.language, t.difficulty::VARCHAR AS difficulty, t.division, {POLICY_NAME} AS policy, c.region,
  {FIRST_REQUEST} AS request, {_SAID} AS lowered
FROM rollouts r LEFT JOIN tasks t USING (task_id) LEFT JOIN policies p ON p.policy_id = r.policy_id
  LEFT JOIN stages s ON s.stage_id = p.stage_id
  LEFT JOIN {CERTAINTY} c ON c.task_id = r.task_id AND c.policy_id = r.policy_id AND c.purpose = r.purpose
ORDER BY {_ORDER["draws"]}"""


@dataclass(frozen=True)
class ConversationSearch:
    """What is looked for. of: a key of `FACETS`; text: a part of what was said, in any case; accepted: yes, no, or empty for both, of
    trajectories; chosen: facet -> value."""

    of: str
    text: str
    accepted: str
    chosen: Mapping[str, str]

    def where(self, *, with_facets: bool) -> tuple[str, list[Any]]:
        """What must hold beside the text, and its parameters."""
        conditions, values = [_ACCEPTED.get(self.accepted, "true") if self.of == "trajectories" else "true"], list[Any]()
        if with_facets:
            conditions += [f'"{column}" = ?' for column in self.chosen]
            values += self.chosen.values()
        return " AND ".join(conditions), values


class ConversationIndex(StoreIndex):
    """The index of all conversations."""

    def __init__(self, store: Store, folder: Path | None = None) -> None:
        super().__init__(store, "conversations", ("trajectories", "rollouts", "tasks", "tags", "stages", "policies"), _BUILD_SQL, folder)

    def find(self, search: ConversationSearch, *, first: int, count: int) -> tuple[list[dict[str, Any]], int, dict[str, Facet]]:
        """Trajectories by falling complexity, or draws by policy, purpose and task; the number of all that fit, and the facets."""
        listed, counted, table = search.where(with_facets=True), search.where(with_facets=False), _table(search.of)
        filtered = ("accepted",) if table == "trajectories" else ()
        rows, cube = self.search(table, search.text, listed, counted, FACETS[table], filtered, first=first, count=count)
        return rows, *count_facets(cube, FACETS[table], search.chosen)


def _table(of: str) -> str:
    if of not in FACETS:
        raise BadInput(f"there is no list of {of}; there are lists of {' and '.join(FACETS)}")
    return of
