"""What a command needs to find, checked at the door: before a server is started, a lock taken or anything written.

Every function raises BadInput, in one line that says what to do. Heavy libraries are imported inside them (see `main.py`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import BadInput

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from flows.config import Config
    from storage.records import Tool
    from storage.store import Store
    from synth.clusters.business_clusters import Cluster
    from synth.clusters.catalog import Catalogue
    from synth.roles.role_engines import RolesConfig
    from train.backends.base import Need


def settings(config: Path | None, store: Path | None = None, families: Path | None = None) -> Config:
    """The configuration in a file, with what the command line says instead, for a store that this version can use."""
    from flows.config import read
    from storage.store import Store

    found = read(config, store=store, families=families)
    Store(found.store)
    return found


def open_store(config: Path | None, store: Path | None) -> Store:
    """The store that is named, or the configuration's, or the newest under runs/, which must hold something."""
    if store is None and config is not None:
        from flows.config import read

        store = read(config).store
    if store is None:
        found = sorted(Path("runs").glob("*/store/catalog.read.duckdb"), key=lambda path: path.stat().st_mtime)
        if not found:
            raise BadInput("no store under runs/; name one with --store")
        store = found[-1].parent
    return _existing(store)


def check_has_tasks(config: Config) -> None:
    """The configuration's store holds tasks."""
    store = _existing(config.store)
    if not store.query("SELECT 1 FROM tasks LIMIT 1").height:
        raise BadInput(f"{store.root} holds no tasks yet: curate or synthesize first")


def check_policy(config: Config, named: str | None, *, or_none: bool = False) -> None:
    """The policy of that id or engine, or, where none is named, the one promoted last, is there and can answer.

    or_none: it will do if none is named and none was promoted."""
    from train.policies import find_policy, promoted_policy

    store = _existing(config.store)
    found = promoted_policy(store) if named is None and or_none else find_policy(store, named)
    if found is not None:
        found.check()


def set_engine_limits(config: Config, said: Mapping[str, Any]) -> Config:
    """The configuration with another way to ask a policy that is an engine, where one is given."""
    from pydantic import ValidationError

    from train.config import EngineConfig

    given = {name: value for name, value in said.items() if value is not None}
    try:
        engine = EngineConfig.model_validate(config.train.engine.model_dump() | given)
    except ValidationError as error:
        raise BadInput("; ".join(map(_told, error.errors()))) from None
    return config.model_copy(update={"train": config.train.model_copy(update={"engine": engine})})


def query_files(names: Sequence[str | Path]) -> list[str]:
    """The files that these paths, patterns and URLs stand for, in an order that does not change: absolute paths, and URLs."""
    from filters.ingest.source_files import is_url, locate

    return [name if is_url(name) else str(Path(name).absolute()) for name in locate(names)]


def count_query_rows(files: Sequence[str | Path], config: Config) -> int:
    """How many rows these query files hold (of new files only, where only those are wanted).

    Raises BadInput: what `ingest.inspect` refuses.
    """
    from concurrent.futures import ThreadPoolExecutor

    from filters.funnel import NothingNew, new_files
    from filters.ingest import inspect
    from storage.store import Store

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        try:
            named = new_files(Store(config.store), [str(file) for file in files], threads) if config.curate.only_new else files
        except NothingNew:
            return 0
        return sum(source.rows for source in inspect(named, config.curate.ingest, threads))


def check_query_heads(files: Sequence[str | Path], config: Config) -> None:
    """The query files begin as they should; the rest is for whoever reads them."""
    from filters.ingest import look_at

    for file in files:
        look_at(str(file), config.curate.ingest)


def check_held_out(config: Config) -> None:
    """The held-out sets are there and hold questions."""
    from filters.steps.selection.contamination import load
    from synth.engines.encoder import encode

    load(config.curate.contamination, encode)


def resolve_query_id(store: Store, named: str) -> str:
    """The id of the row that `FILE:ROW` names (rows count from 0, as they lie in the file); any other text as it is."""
    source, _, row = named.rpartition(":")
    if not source or not row.isdecimal():
        return named
    found = store.query("SELECT DISTINCT query_id FROM queries WHERE source = ? AND row = ?", [Path(source).name, int(row)])["query_id"]
    if len(found) != 1:
        known = store.query("SELECT DISTINCT source FROM queries ORDER BY source LIMIT 10")["source"].to_list()
        files = f"no such row; files read: {', '.join(known) or 'none'}"
        raise BadInput(f"{named}: {store.root} holds {'several files of that name' if len(found) else files}; give the query's id")
    return str(found[0])


def set_synthesis_options(
    config: Config, worlds: list[str], tools: Path | None, accepted: int | None, roles: Mapping[str, Any] | None = None
) -> Config:
    """The configuration with other worlds or tools to synthesise with, another number to stop at and other roles, where these are given."""
    from pydantic import ValidationError

    from synth.clusters.catalog import read_catalogue
    from synth.run.config import SynthesisConfig

    if tools is not None and all(tool.world is None for tool in read_catalogue(tools).tools):
        raise BadInput(
            f"--tools {tools}: no world executes any of these tools, so no conversation can be played out with them; give a row the key "
            "`world` (a world's name, or a domain spec's file), or look at them with `headrace clusters build`"
        )
    said: dict[str, Any] = {}
    if worlds or tools is not None:
        said |= {
            "worlds": tuple(worlds),
            "drills": _drills(config, worlds, accepted),
            "tools": tools,
        }
    if accepted is not None:
        evolution = config.synthesize.evolution.model_dump() | {"stop_idle_rounds": accepted}
        said |= {"accepted": accepted, "max_proposals": max(config.synthesize.max_proposals, 5 * accepted), "evolution": evolution}
    if roles:
        said["roles"] = config.synthesize.roles.model_dump() | dict(roles)
    try:
        own = SynthesisConfig.model_validate(config.synthesize.model_dump() | said)
    except ValidationError as error:
        raise BadInput("; ".join(map(_told, error.errors()))) from None
    return config.model_copy(update={"synthesize": own})


def check_funnel_engines(config: Config) -> None:
    """The engines that the funnel asks are there, if any are named; looked at as `check_role_engines` are."""
    from synth.engines.engine_names import look_at

    for name in sorted({name for name in (config.curate.ground.engine, config.curate.difficulty.engine) if name}):
        look_at(str(name))


def backends(config: Config, *, patience_s: float | None = 0.0) -> None:
    """What the stages' backends need is there: now, or within so many seconds (None: as the configuration has it)."""
    for _, need in needs(config):
        if need.check is not None:
            need.check(patience_s)


def needs(config: Config) -> list[tuple[list[str], Need]]:
    """What the stages need, each with the names of the stages that need it."""
    own = config.train
    found: dict[Need, list[str]] = {}
    specs = own.draft_specs(config.store.absolute())
    for stage in own.cascade:
        for need in own.backend_of(stage).needs(specs[stage.name]):
            found.setdefault(need, []).append(stage.name)
    return [(stages, need) for need, stages in found.items()]


def check_role_engines(roles: RolesConfig) -> None:
    """The engines that play roles are there: a server answers, serves the model and takes tools; a folder or an environment exists.

    A `vllm:` engine is looked at no further than that: it is started by whoever uses it."""
    from synth.engines.engine_names import look_at

    for name in sorted(set(roles.engines.values())):
        look_at(name, tools=name == roles.assistant)


def set_focus(config: Config, on_failures: bool) -> Config:
    """The configuration, steered by what the last policy fails at where that is asked for: with weight 1, unless it names another."""
    evolution = config.synthesize.evolution
    if not on_failures or evolution.focus_weight:
        return config
    steered = config.synthesize.model_copy(update={"evolution": evolution.model_copy(update={"focus_weight": 1.0})})
    return config.model_copy(update={"synthesize": steered})


def _drills(config: Config, worlds: list[str], accepted: int | None) -> dict[str, int]:
    """The drills of worlds that were named one by one: as configured, else as many together as conversations are wanted."""
    from synth.worlds import names_in

    single = [name for name in worlds if names_in([name]) == (name,)]
    share = math.ceil((accepted or config.synthesize.accepted) / max(1, len(single)))
    return {name: config.synthesize.drills.get(name, share) for name in single}


def release(store: Store, named: str | None) -> str:
    """The id of a release: as it is named, the latest of that name, or one made now of all that was synthesised."""
    if named is None:
        from filters.release_synthetic import collect

        return collect(store)
    found = store.query(
        "SELECT release_id FROM releases JOIN parts USING (part_id) WHERE name = ? ORDER BY committed_at DESC LIMIT 1", [named]
    )
    return str(found.item()) if found.height else named


def licences(given: list[str], store: Store, release_id: str) -> dict[str, str]:
    """`FILE=LICENCE` texts as a mapping from sources of raw queries, which the release must have tasks of."""
    from storage.releases.dataset_card import sources_of
    from storage.releases.release import manifest_of

    manifest_of(store, release_id)
    known = [source for source, _ in sources_of(store, release_id)]
    found: dict[str, str] = {}
    for text in given:
        source, is_pair, licence = text.partition("=")
        if not is_pair or not licence.strip():
            raise BadInput(f"--licence {text}: write FILE=LICENCE, e.g. questions.parquet=CC-BY-4.0")
        if source not in known:
            raise BadInput(
                f"--licence {text}: no task of {release_id} came from {source}; they came from {', '.join(known) or 'no queries'}"
            )
        found[source] = licence.strip()
    return found


def world_name(given: str) -> str:
    """The world that a name or a spec's file stands for."""
    from pydantic import TypeAdapter, ValidationError

    from synth.worlds import WorldName

    try:
        return str(TypeAdapter(WorldName).validate_python(given))
    except ValidationError as error:
        raise BadInput(_told(error.errors()[0])) from None


def world_names(given: list[str]) -> tuple[str, ...]:
    """The worlds that `--world` names, each once."""
    from pydantic import TypeAdapter, ValidationError

    from synth.worlds import WorldRange, names_in

    try:
        return names_in(TypeAdapter(list[WorldRange]).validate_python(given))
    except ValidationError as error:
        raise BadInput("; ".join(f"--world: {each['msg'].removeprefix('Value error, ')}" for each in error.errors())) from None


def tools_of(worlds: tuple[str, ...]) -> list[Tool]:
    """The tools of worlds."""
    from synth.worlds import WORLDS

    return [tool for name in worlds for tool in WORLDS[name].tools]


def catalogue(path: Path | None, worlds: tuple[str, ...]) -> Catalogue | None:
    """The catalogue in a file, where one is named; without one there must be a world."""
    from synth.clusters.catalog import read_catalogue

    if path is None and not worlds:
        raise BadInput("no tools are named: give a catalogue with --tools FILE, or a world with --world NAME")
    return None if path is None else read_catalogue(path)


def require_clusters(found: list[Cluster], domain: str | None) -> list[Cluster]:
    """Clusters, of which there must be one."""
    if not found:
        where = "no clusters" if domain is None else f"no clusters of the domain {domain!r} (`headrace clusters list` shows what there is)"
        raise BadInput(f"the store holds {where}; build some with `headrace clusters build`")
    return found


def _told(error: ErrorDetails) -> str:
    """What is wrong with a configuration, after the field that it is wrong with, where it is one."""
    field = ".".join(map(str, error["loc"]))
    return f"{field}{': ' if field else ''}{error['msg'].removeprefix('Value error, ')}"


def _existing(store: Path) -> Store:
    from storage.store import Store

    opened = Store(store)
    if not opened.exists():
        raise BadInput(f"{opened.root} is not a store yet: run, synthesize or curate into it first, or name another with --store")
    return opened
