"""The configurations that made a store: the settings of each flow that worked on it, in the order of their first use.

One idea: the rows form a chain. The id of a row's part follows from the row before it, so the same flows with the same settings give the
same rows, whatever was killed in between. A flow whose settings are those of its last row adds nothing.

It does not interpret the settings: `flows/config.py` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from storage.records import canonical_json
from storage.store import Store, part_id
from storage.tables import TABLES

VERSION = 1


@dataclass(frozen=True)
class FlowSettings:
    """Settings of a flow.

    flow: name of the flow, such as `train`.
    worlds: names of worlds, and ranges of generated ones (gen-1..40).
    languages: languages of the texts that the flow makes or keeps.
    section: the flow's section of the configuration, as JSON values.
    """

    flow: str
    worlds: tuple[str, ...]
    languages: tuple[str, ...]
    section: Mapping[str, Any]


def read_configurations(store: Store) -> list[FlowSettings]:
    """The settings of all flows that worked on the store, oldest first."""
    rows = store.query("SELECT flow, worlds, languages, section FROM configurations ORDER BY position")
    return [FlowSettings(flow, tuple(worlds), tuple(languages), json.loads(text)) for flow, worlds, languages, text in rows.iter_rows()]


def add_configurations(store: Store, settings: Sequence[FlowSettings]) -> None:
    """Commits the settings that differ from the last ones of the same flow.

    Raises:
        HeadraceError: see `Store.commit`.
    """
    last = {row["flow"]: row for row in store.query("SELECT * FROM configurations ORDER BY position").to_dicts()}
    position = max((row["position"] for row in last.values()), default=0)
    previous = [row["part_id"] for row in last.values() if row["position"] == position]
    parts = []
    for one in settings:
        row: dict[str, Any] = {"flow": one.flow, "worlds": list(one.worlds), "languages": list(one.languages)}
        row["section"] = canonical_json(dict(one.section))
        if one.flow in last and all(last[one.flow][name] == value for name, value in row.items()):
            continue
        position += 1
        row = {"position": position, **row}
        id = part_id("configurations", previous, row, VERSION)
        parts.append(store.find(id) or store.write("configurations", id, pl.DataFrame([row], schema=TABLES["configurations"].columns)))
        previous = [id]
    store.commit(parts)
