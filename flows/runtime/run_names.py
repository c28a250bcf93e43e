"""Names of flow runs in Prefect's UI: what the run works on, and how much of it.

One idea: the parameters of a flow name its run, so a list of runs reads like a diary: `synthesize my_shop · 200`,
`curate 2026-11-23.jsonl · 1.0 M -> 100`. The number of rows of a file is known only when it was read: `rename_run` adds it then.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.config import Config

_SHOWN = 3
"""Worlds or files that a name lists; of more it gives the number."""


def current_run_name() -> str:
    """The name of the current flow run, by its parameters. Prefect calls it as `flow_run_name`."""
    from prefect.runtime import flow_run

    return run_name(flow_run.flow_name, **flow_run.parameters)


def run_name(flow: str, config: Config, *, files: Sequence[str] | None = None, policy: str | None = None, **_: Any) -> str:
    """The name of a run of this flow with these parameters."""
    match flow:
        case "synthesize":
            return f"synthesize {_list_worlds(config.synthesize.worlds)} · {config.synthesize.accepted:,}"
        case "curate" if files:
            return f"curate {list_sources(files)}"
        case "curate":
            return curation_name([], config.haystack.rows, config.curate.target_tasks(config.haystack.rows))
        case "train":
            return f"train {_list_worlds(config.train.worlds)} · {_count(len(config.train.cascade), 'stage')}"
        case "tag" | "evaluate":
            return f"{flow} {policy or 'the promoted policy'} · {_list_worlds(config.train.worlds)}"
    return f"{flow} {config.store.parent.name} · {_count(len(config.train.cascade), 'stage')}"


def curation_name(files: Sequence[str], rows: int, kept: int) -> str:
    """The name of a curation of these files; of the generated queries if there are none. rows: read. kept: of them."""
    return f"curate {list_sources(files)} · {short_count(rows)} -> {short_count(kept)}"


def rename_run(name: str) -> None:
    """Give the current flow run another name."""
    from prefect.client.orchestration import get_client
    from prefect.runtime import flow_run

    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run.id, name=name)


def short_count(count: int) -> str:
    """A count in a few signs: 100, 12 k, 1.0 M."""
    if count < 10_000:
        return f"{count:,}"
    size, unit = next((size, unit) for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if count >= size)
    return f"{count / size:.{int(count / size < 10)}f} {unit}"


def list_sources(files: Sequence[str]) -> str:
    """The names of query files; of many their number."""
    names = [Path(file).name for file in files]
    return ", ".join(names) if 0 < len(names) <= _SHOWN else f"{len(names):,} files" if names else "generated queries"


def _list_worlds(worlds: Sequence[str]) -> str:
    """The domains of worlds; of many their number."""
    names = [name.partition("@")[0] for name in worlds]
    return ", ".join(names) if 0 < len(names) <= _SHOWN else f"{len(names):,} worlds" if names else "own tools"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
