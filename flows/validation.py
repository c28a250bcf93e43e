"""Checks of a command's input, before the command starts a server, takes a lock or writes anything.

Every function raises BadInput with one line that says what to do. Heavy libraries are imported inside the functions (see `main.py`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from storage.errors import BadInput

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

    from flows.config import Config
    from storage.records import Language
    from storage.store import Store
    from synth.clusters.business_clusters import Cluster
    from synth.clusters.catalog import Catalogue
    from synth.roles.role_engines import RolesConfig
    from train.backends.base import Need


Model = TypeVar("Model", bound="BaseModel")


def read_config(config: Path | None, store: Path | None = None, families: Path | None = None) -> Config:
    """Read a configuration file, with the values of the command line in place of the file's, and those of the store for what neither
    names (see `flows.config.recall`). Checks that the store is usable."""
    from flows.config import read, recall, share_store

    settings = read(config, store=store, families=families)
    share_store(settings)
    return recall(settings, is_bare=config is None)


def open_store(config: Path | None, store: Path | None) -> Store:
    """The store of this folder, else the configuration's, else the newest under runs/. It must exist."""
    if store is None and config is not None:
        from flows.config import read, share_store

        settings = read(config)
        share_store(settings)
        store = settings.store
    if store is None:
        catalogues = Path("runs").glob("*/store/catalog.read.duckdb")
        newest = max(catalogues, key=lambda path: path.stat().st_mtime, default=None)
        if newest is None:
            raise BadInput("no store under runs/; name one with --store")
        store = newest.parent
    return _existing(store)


def check_has_tasks(config: Config) -> None:
    """Check that the configuration's store holds tasks to train on."""
    from train.data.task_pool import check_tasks

    check_tasks(_existing(config.store), worlds=config.train.worlds, max_difficulty=config.train.max_difficulty)


def missing_kind(config: Config) -> str:
    """What the store lacks that a scheduled training is to learn from, in words; empty if it has everything."""
    store = _existing(config.store)
    worlds, named = list(config.train.worlds), ", ".join(config.train.worlds)
    if not store.query("SELECT 1 FROM tasks WHERE query_id IS NOT NULL AND list_contains(?, world) LIMIT 1", [worlds]).height:
        return f"the store holds no task of a query in {named} yet"
    accepted = "SELECT 1 FROM trajectories WHERE accepted AND cluster_id IS NOT NULL AND list_contains(?, world) AND language = ? LIMIT 1"
    if config.train.synthesised_share and not store.query(accepted, [worlds, config.train.language]).height:
        return f"the store holds no accepted conversation in {named} yet"
    return ""


def check_policy(config: Config, name_or_id: str | None, *, or_none: bool = False) -> None:
    """Check that a policy or engine exists and can answer.

    name_or_id: id of a policy, or name of an engine; None: the policy promoted last.
    or_none: also accept a store without a promoted policy.
    """
    from train.policies import find_policy, promoted_policy

    store = _existing(config.store)
    policy = promoted_policy(store) if name_or_id is None and or_none else find_policy(store, name_or_id)
    if policy is not None:
        policy.check()


def set_engine_limits(config: Config, limits: Mapping[str, Any]) -> Config:
    """The configuration with these values of `train.engine`; None keeps the configured value."""
    engine = _change(config.train.engine, {name: value for name, value in limits.items() if value is not None})
    return config.model_copy(update={"train": config.train.model_copy(update={"engine": engine})})


def query_files(names: Sequence[str | Path]) -> list[str]:
    """The absolute paths and URLs that these paths, patterns and URLs stand for, in a stable order."""
    from filters.ingest.source_files import is_url, locate

    return [name if is_url(name) else str(Path(name).absolute()) for name in locate(names)]


def count_query_rows(files: Sequence[str | Path], config: Config) -> int:
    """Number of rows of these query files; of new files only, if the configuration curates only new files."""
    from concurrent.futures import ThreadPoolExecutor

    from filters.funnel import NothingNew, new_files
    from filters.ingest import inspect
    from filters.ingest.withdrawn_files import leave_out_withdrawn
    from storage.store import Store

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        try:
            counted = new_files(Store(config.store), [str(file) for file in files], threads) if config.curate.only_new else files
        except NothingNew:
            return 0
        admitted, _ = leave_out_withdrawn(Store(config.store), inspect(counted, config.curate.ingest, threads))
        return sum(source.rows for source in admitted)


def check_query_heads(files: Sequence[str | Path], config: Config) -> None:
    """Check the first rows of every query file. The funnel checks the rest when it reads the files."""
    from filters.ingest import inspect_head

    for file in files:
        inspect_head(str(file), config.curate.ingest)


def check_held_out(config: Config) -> None:
    """Check that the held-out sets exist and contain questions."""
    from filters.steps.selection.contamination import load
    from synth.engines.encoder import encode

    load(config.curate.contamination, encode)


def resolve_query_id(store: Store, name_or_id: str) -> str:
    """The query id of the row `FILE:ROW` (rows of a file count from 0). Any other text is returned as it is."""
    source, _, row = name_or_id.rpartition(":")
    if not source or not row.isdecimal():
        return name_or_id
    ids = store.query("SELECT DISTINCT query_id FROM queries WHERE source = ? AND row = ?", [Path(source).name, int(row)])["query_id"]
    if len(ids) != 1:
        sources = store.query("SELECT DISTINCT source FROM queries ORDER BY source LIMIT 10")["source"].to_list()
        files = f"no such row; files read: {', '.join(sources) or 'none'}"
        raise BadInput(f"{name_or_id}: {store.root} holds {'several files of that name' if len(ids) else files}; give the query's id")
    return str(ids[0])


def set_synthesis_options(
    config: Config, worlds: list[str], tools: Path | None, accepted: int | None, roles: Mapping[str, Any] | None = None
) -> Config:
    """The configuration with other values of `synthesize`; None and empty values change nothing.

    worlds, tools: the worlds, or the catalogue file, whose tools are used.
    accepted: number of accepted conversations to stop at.
    roles: values of `synthesize.roles`.
    """
    from synth.clusters.catalog import read_catalogue

    if tools is not None and all(tool.world is None for tool in read_catalogue(tools).tools):
        raise BadInput(
            f"--tools {tools}: no world executes any of these tools, so no conversation can be simulated with them; give a row the key "
            "`world` (a world's name, or a domain spec's file), or look at them with `headrace clusters build`"
        )
    worlds = _parse_worlds(worlds)
    section = config.synthesize
    changes: dict[str, Any] = {}
    if worlds or tools is not None:
        changes |= {"worlds": tuple(worlds), "drills": _drills(config, worlds, accepted), "tools": tools}
    if accepted is not None:
        evolution = section.evolution.model_dump() | {"stop_idle_rounds": accepted}
        changes |= {"accepted": accepted, "max_proposals": max(section.max_proposals, 5 * accepted), "evolution": evolution}
    if roles:
        changes["roles"] = section.roles.model_dump() | dict(roles)
    return config.model_copy(update={"synthesize": _change(section, changes)})


def check_funnel_engines(config: Config) -> None:
    """Check that the engines of the funnel, if any, are available (see `check_role_engines`)."""
    from synth.engines.engine_names import check_engine

    for name in sorted({name for name in (config.curate.ground.engine, config.curate.difficulty.engine) if name}):
        check_engine(str(name))


def check_backends(config: Config, *, patience_s: float | None = 0.0) -> None:
    """Check that the backends of the stages have what they need, and wait for it if needed; that the engine of the experts is
    available; and that the base model can be trained, with the general conversations that are mixed in.

    patience_s: longest wait in seconds; None: as configured.
    """
    from synth.engines.engine_names import check_engine
    from train.data.general_data import choose_chats
    from train.models.base_model import check_base_model, resolve_model, window_of

    check_language(config)
    for _, need in stage_needs(config):
        if need.check is not None:
            need.check(patience_s)
    if config.train.experts.engine is not None:
        check_engine(config.train.experts.engine, tools=True)
    if config.train.model is not None:
        folder = resolve_model(config.train.model)
        check_base_model(folder)
        choose_chats(config.train.chat_counts, window_of(folder))


def check_language(config: Config) -> None:
    """Check that a world of `train.worlds` speaks `train.language` where it is set; else tasks are in the languages of the worlds."""
    if "language" not in config.train.model_fields_set:
        return
    from synth.worlds import WORLDS

    wanted, worlds = config.train.language, config.train.worlds
    spoken = {language for name in worlds for language in WORLDS[name].languages}
    if wanted not in spoken:
        raise BadInput(f"train.language is {wanted}, but no world of train.worlds speaks it ({', '.join(worlds)}); set it to {min(spoken)}")


def stage_needs(config: Config) -> list[tuple[list[str], Need]]:
    """All needs of the stages' backends, each with the names of its stages."""
    cascade = config.train
    stages: dict[Need, list[str]] = {}
    specs = cascade.draft_specs(config.store.absolute())
    for stage in cascade.cascade:
        for need in cascade.backend_of(stage).needs(specs[stage.name]):
            stages.setdefault(need, []).append(stage.name)
    return [(names, need) for need, names in stages.items()]


def check_role_engines(roles: RolesConfig) -> None:
    """Check the engines of the roles: a server answers, serves the model and accepts tools; a folder or environment exists.

    A `vllm:` engine is not started: the run does that.
    """
    from synth.engines.engine_names import check_engine

    for name in sorted(set(roles.engines.values())):
        check_engine(name, tools=name == roles.assistant)


def set_focus(config: Config, on_failures: bool) -> Config:
    """The configuration with the focus weight 1, if `on_failures` is true and the configured weight is 0."""
    evolution = config.synthesize.evolution
    if not on_failures or evolution.focus_weight:
        return config
    synthesis = config.synthesize.model_copy(update={"evolution": evolution.model_copy(update={"focus_weight": 1.0})})
    return config.model_copy(update={"synthesize": synthesis})


def set_weights(config: Config, section: Literal["synthesize", "train"], path: Path | None) -> Config:
    """The configuration with the source weights of a file. Raises BadInput where the section cannot use them."""
    if path is None:
        return config
    from synth.run.evolution.source_weights import read_weights

    return config.model_copy(update={section: _change(getattr(config, section), {"source_weights": read_weights(path).model_dump()})})


def _drills(config: Config, worlds: list[str], accepted: int | None) -> dict[str, int]:
    """Number of drills of every world that is named singly: as configured, else an equal share of the conversations."""
    from synth.worlds import names_in

    single = [name for name in worlds if names_in([name]) == (name,)]
    share = math.ceil((accepted or config.synthesize.accepted) / max(1, len(single)))
    return {name: config.synthesize.drills.get(name, share) for name in single}


def resolve_release(store: Store, name_or_id: str | None) -> str:
    """The id of a release.

    name_or_id: id, or name (then the latest release of that name); None: make a release of all synthesised conversations,
    or of all tasks if there are none.
    """
    if name_or_id is None:
        from filters.release_synthetic import collect

        return collect(store)
    rows = store.query(
        "SELECT release_id FROM releases JOIN parts USING (part_id) WHERE name = ? ORDER BY committed_at DESC LIMIT 1", [name_or_id]
    )
    return str(rows.item()) if rows.height else name_or_id


def parse_licences(texts: list[str], store: Store, release_id: str) -> dict[str, str]:
    """`FILE=LICENCE` texts as a mapping. The release must have tasks from every named file of raw queries."""
    from storage.releases.dataset_card import sources_of
    from storage.releases.release import manifest_of

    manifest_of(store, release_id)
    sources = [source for source, _ in sources_of(store, release_id)]
    licences = split_licences(texts)
    for source, licence in licences.items():
        if source not in sources:
            came_from = ", ".join(sources) or "no queries"
            raise BadInput(f"--licence {source}={licence}: no task of {release_id} came from {source}; they came from {came_from}")
    return licences


def split_licences(texts: list[str]) -> dict[str, str]:
    """`FILE=LICENCE` texts as a mapping."""
    licences: dict[str, str] = {}
    for text in texts:
        source, is_pair, licence = text.partition("=")
        if not is_pair or not licence.strip():
            raise BadInput(f"--licence {text}: write FILE=LICENCE, e.g. questions.parquet=CC-BY-4.0")
        licences[source] = licence.strip()
    return licences


def resolve_curation(store: Store, name: str | None) -> str | None:
    """The id of a run of the funnel, of which the beginning may be given; None: no run is meant."""
    if name is None:
        return None
    runs = store.query("SELECT DISTINCT run FROM funnel ORDER BY run")["run"].to_list()
    begun = [run for run in runs if run == name] or [run for run in runs if run.startswith(name)]
    if len(begun) != 1:
        problem = f"several curations begin so: {', '.join(begun)}" if begun else f"{store.root} has no such curation"
        raise BadInput(f"export {name} --queries: {problem}; it has {', '.join(runs) or 'none yet'}")
    return str(begun[0])


def refuse_options_of_messages(trainer: str, calls: str, arguments: str) -> None:
    """Check that no option for conversations goes with an export of queries, or of annotations."""
    if (trainer, calls, arguments) != ("trl", "parallel", "object"):
        raise BadInput("what --queries and --by-hand write has no messages; leave out --format, --calls and --arguments")


def refuse_options_of_suites(options: Mapping[str, Any]) -> None:
    """Check that no option for suites goes without one."""
    if given := [name for name, value in options.items() if value is not None]:
        raise BadInput(f"{given[0]} is an option of suites; name one with --suite")


def resolve_world(name_or_file: str) -> str:
    """The name of the world that a name or a spec file stands for."""
    from pydantic import TypeAdapter, ValidationError

    from synth.worlds import WorldName

    try:
        return str(TypeAdapter(WorldName).validate_python(name_or_file))
    except ValidationError as error:
        raise BadInput(_describe(error.errors()[0])) from None


def resolve_worlds(options: list[str]) -> tuple[str, ...]:
    """The names of all worlds of the option `--world`, each once."""
    from synth.worlds import names_in

    return names_in(_parse_worlds(options))


def _parse_worlds(options: list[str]) -> list[str]:
    """The option `--world` with the names of worlds in place of their files. Raises BadInput: there is no such world."""
    from pydantic import TypeAdapter, ValidationError

    from synth.worlds import WorldRange

    try:
        return TypeAdapter(list[WorldRange]).validate_python(options)
    except ValidationError as error:
        raise BadInput("; ".join(f"--world: {each['msg'].removeprefix('Value error, ')}" for each in error.errors())) from None


def read_languages(text: str) -> tuple[Language, ...]:
    """The languages of the option `--languages`."""
    from typing import get_args

    from storage.records import Language

    names = text.replace(",", " ").split()
    if not names or not set(names) <= set(get_args(Language)):
        raise BadInput(f"--languages {text}: expected en, zh or en,zh")
    return tuple(each for each in get_args(Language) if each in names)


def read_tools(path: Path | None, worlds: tuple[str, ...], server: str | None = None) -> Catalogue | None:
    """The catalogue in a file or of a live server, if one is named; without it there must be a world."""
    from synth.clusters.catalog import live_catalogue, read_catalogue

    if path is not None and server is not None:
        raise BadInput("--tools and --server name a catalogue each; give one of them")
    if path is None and server is None and not worlds:
        raise BadInput("no tools are named: give a catalogue with --tools FILE or --server COMMAND, or a world with --world NAME")
    if server is not None:
        return live_catalogue(server)
    return None if path is None else read_catalogue(path)


def require_clusters(clusters: list[Cluster], domain: str | None) -> list[Cluster]:
    """The clusters, of which there must be at least one."""
    if not clusters:
        where = "no clusters" if domain is None else f"no clusters of the domain {domain!r} (`headrace clusters list` shows what there is)"
        raise BadInput(f"the store holds {where}; build some with `headrace clusters build`")
    return clusters


def _change(section: Model, changes: Mapping[str, Any]) -> Model:
    """A section of the configuration with other values, validated."""
    from pydantic import ValidationError

    try:
        return type(section).model_validate(section.model_dump() | dict(changes))
    except ValidationError as error:
        raise BadInput("; ".join(map(_describe, error.errors()))) from None


def _describe(error: ErrorDetails) -> str:
    """A validation error as `field: message`."""
    field = ".".join(map(str, error["loc"]))
    return f"{field}{': ' if field else ''}{error['msg'].removeprefix('Value error, ')}"


def _existing(store: Path) -> Store:
    from storage.store import Store

    opened = Store(store)
    opened.pull()
    if not opened.exists():
        raise BadInput(f"{opened.root} is not a store yet: run, synthesize or curate into it first, or name another with --store")
    return opened


def system_user() -> str:
    """The name of the system's user.

    Raises BadInput: the system has none.
    """
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise BadInput("the system has no name for you; give one with --author NAME") from None
