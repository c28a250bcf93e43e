"""The configuration of all flows: one model per section, each defined beside the functions that it configures.

One file configures every flow, so one flow's run can pass it to the next. The defaults are those of the sample.
Unknown keys are refused (`flows/yaml_config.py` suggests the nearest valid key). The environment is not read.

A store remembers the configurations that made it (`storage/configurations.py`). `recall` gives a configuration that names no worlds those
of its store, so that the defaults do not stand for worlds that the user never named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from filters.funnel import FunnelConfig
from filters.grounding.ground_model import GroundConfig
from filters.ingest import IngestConfig
from filters.steps.selection.contamination import SUITES, ContaminationConfig
from flows import yaml_config
from storage.configurations import FlowSettings, add_configurations, read_configurations
from storage.errors import BadInput
from storage.releases.release import GENERAL
from storage.store import Store
from storage.tombstones.withdrawn_rows import list_withdrawals, refuse_sources
from synth.clusters.catalog import read_catalogue
from synth.engines.budget import MonthlyBudget
from synth.engines.spending.ledger import Ledger
from synth.haystack.generate import HaystackConfig, wordings
from synth.run.config import SynthesisConfig
from synth.worlds import WORLDS, admitted_names, names_in
from synth.worlds.stored_worlds import register_stored
from train.config import CascadeConfig

_WORLD_KEYS = ("worlds", "tools", "drills", "world_weights", "programs")
"""Keys of `synthesize` that name worlds."""


class Config(BaseModel):
    """All settings of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: Path = Field(
        Path("runs/sample/store"), description="Folder of the store; the report and the generated queries are written next to it."
    )
    object_store: str | None = Field(
        None,
        description="URL under which several machines share the store (s3://BUCKET/PATH): `store` is then this machine's copy of it. Any "
        "URL that fsspec knows, of an object store with conditional writes. Null: the store is its folder alone.",
    )
    synthesize: SynthesisConfig = Field(
        SynthesisConfig(), description="Synthesis: conversations over the worlds' tools, executed and verified."
    )
    haystack: HaystackConfig = Field(HaystackConfig(), description="The generated queries, used if no files are given.")
    families: Path | None = Field(
        None, description="YAML file with other wordings for the generated queries; null: the wordings of the worlds."
    )
    curate: FunnelConfig = Field(FunnelConfig(), description="The funnel, from raw queries to admitted tasks.")
    train: CascadeConfig = Field(CascadeConfig(), description="The cascade: training stages, with their probes, evaluations and gate.")
    budgets: dict[str, MonthlyBudget] = Field(
        {},
        description="Engine (openai:MODEL, vllm:MODEL) -> its budget of a calendar month, for all runs on the store, on all machines that "
        "share it; the store remembers them for commands without a configuration. `headrace ledger` shows what is left.",
    )

    @field_validator("budgets")
    @classmethod
    def _are_engines(cls, budgets: dict[str, MonthlyBudget]) -> dict[str, MonthlyBudget]:
        for name in budgets:
            kind, _, model = name.partition(":")
            if kind not in ("openai", "vllm") or not model:
                raise ValueError(f"{name!r} is no engine that is paid for; give openai:MODEL or vllm:MODEL")
        return budgets

    @property
    def folder(self) -> Path:
        """The folder of a run's files outside its store."""
        return self.store.parent

    @property
    def report(self) -> Path:
        return self.folder / "report.html"


def read(file: Path | None, *, store: Path | None = None, families: Path | None = None) -> Config:
    """Read a configuration file (None: the defaults).

    store, families: values of the command line; they replace those of the file.
    A file may name the user's own worlds in the store, without their specs.

    Raises BadInput: see `yaml_config.load` and `synth.haystack.generate.wordings`; the store cannot be read.
    """
    named = store or (yaml_config.parse(file).values.get("store") if file is not None else None)
    if isinstance(named, str | Path) and Path(named).is_dir():
        register_stored(Store(named))
    config = yaml_config.load(file, Config) if file is not None else Config()
    config = config.model_copy(update={"store": store or config.store, "families": families or config.families})
    if config.families is not None:
        wordings(config.families, config.haystack.worlds)
    return config


def share_store(config: Config) -> None:
    """Make the configuration's folder a copy of the store under its `object_store`, up to date. Without that key, do nothing.

    Raises HeadraceError: see `Store.share`.
    """
    if config.object_store is not None:
        Store(config.store).share(config.object_store)


def recall(config: Config, *, is_bare: bool = False) -> Config:
    """The configuration, with worlds and language of its store for those that it does not name.

    is_bare: no file was given; then all settings of training are those of the store's last training, so that measures are comparable.

    Worlds of synthesis are those of the last synthesis. Worlds of training are those of the last training, and those that were synthesised
    since; in a store that was only curated, those of its tasks if the defaults have none. A store with only Chinese tasks gives Chinese.

    Raises:
        BadInput: the store or a world in it cannot be read, its last training is of another version, or the configuration names drills in
            worlds that the store's synthesis had not.
    """
    store = Store(config.store)
    register_stored(store)
    past = _past(store)
    synthesis, cascade = config.synthesize, config.train
    last = {one.flow: one for one in past}
    if "synthesize" in last and not {"worlds", "tools"} & synthesis.model_fields_set:
        synthesis = _with_worlds_of(synthesis, last["synthesize"])
    if is_bare and "train" in last:
        cascade = _training_of(last["train"])
    changes: dict[str, Any] = {}
    if "worlds" not in cascade.model_fields_set:
        is_named = "worlds" in config.synthesize.model_fields_set
        changes["worlds"] = _training_worlds(store, past, admitted_names(synthesis.worlds) if is_named else ())
    if "language" not in cascade.model_fields_set:
        worlds = list(changes.get("worlds", cascade.worlds))
        languages = store.query("SELECT DISTINCT language FROM tasks WHERE list_contains(?, world)", [worlds])["language"].to_list()
        changes |= {"language": "zh"} if languages == ["zh"] else {}
    return config.model_copy(update={"synthesize": synthesis, "train": cascade.model_copy(update=changes)})


def remember(config: Config, *flows: Literal["synthesize", "curate", "train"]) -> Config:
    """Add the settings of these flows to what the store remembers. Returns the configuration.

    Raises BadInput: the catalogue of tools cannot be read, or a world, engine or file was withdrawn from the store.
    """
    settings_of = {"synthesize": _synthesis_settings, "curate": _curation_settings, "train": _training_settings}
    for flow in flows:
        _refuse_withdrawn(config, flow)
    keep_budgets(config)
    add_configurations(Store(config.store), [settings_of[flow](config) for flow in flows])
    return config


def keep_budgets(config: Config, store: Path | None = None) -> None:
    """Gives the budgets of a configuration to its store (or to `store`). Without a section `budgets`, those of the store stay."""
    if "budgets" in config.model_fields_set:
        ledger = Ledger((store or config.store).absolute())
        ledger.set_budgets(config.budgets)
        ledger.close()


def _refuse_withdrawn(config: Config, flow: str) -> None:
    """Raises BadInput: the flow would take rows of a source that was withdrawn from the store."""
    store, roles, training = Store(config.store), config.synthesize.roles, config.train
    if flow == "synthesize":
        refuse_sources(store, "world", names_in(config.synthesize.worlds), "synthesize.worlds")
        engines = (roles.planner, roles.user, roles.assistant, roles.judge)
        refuse_sources(store, "teacher", [name for name in engines if name], "synthesize.roles")
    elif flow == "train":
        refuse_sources(store, "world", training.worlds, "train.worlds")
        refuse_sources(store, "teacher", [f"{GENERAL}:{Path(source).name}" for source in training.mix], "train.mix")
        refuse_sources(store, "teacher", [training.experts.engine] if training.experts.engine else [], "train.experts.engine")
    else:
        refuse_sources(store, "world", config.curate.worlds or (), "curate.worlds")


def _past(store: Store) -> list[FlowSettings]:
    """The settings that the store remembers, without the worlds that were withdrawn from it."""
    gone = {one.source for one in list_withdrawals(store) if one.kind == "world"}
    return [_without(one, gone) if gone & set(names_in(one.worlds)) else one for one in read_configurations(store)]


def _without(settings: FlowSettings, gone: Set[str]) -> FlowSettings:
    """The settings without these worlds."""
    worlds = tuple(name for name in names_in(settings.worlds) if name not in gone)
    section = dict(settings.section) | {"worlds": list(worlds)}
    for key in _WORLD_KEYS:
        if isinstance(section.get(key), Mapping):
            section[key] = {name: value for name, value in section[key].items() if name not in gone}
    return replace(settings, worlds=worlds, section=section)


def _synthesis_settings(config: Config) -> FlowSettings:
    section = config.synthesize
    tools = read_catalogue(section.tools).tools if section.tools is not None else ()
    worlds = dict.fromkeys([*section.worlds, *sorted({tool.world for tool in tools if tool.world is not None})])
    wanted = ("en",) * (section.chinese_share < 1) + ("zh",) * (section.chinese_share > 0)
    spoken = {language for name in worlds for language in (WORLDS[name].languages if name in WORLDS else ("en", "zh"))}
    languages = tuple(sorted(spoken & set(wanted) or spoken))
    return FlowSettings("synthesize", tuple(worlds), languages, section.model_dump(mode="json"))


def _curation_settings(config: Config) -> FlowSettings:
    return FlowSettings("curate", (), config.curate.rules.languages, config.curate.model_dump(mode="json"))


def _training_settings(config: Config) -> FlowSettings:
    return FlowSettings("train", config.train.worlds, (config.train.language,), config.train.model_dump(mode="json"))


def _training_of(last: FlowSettings) -> CascadeConfig:
    """The settings of a training, without its worlds."""
    try:
        return CascadeConfig.model_validate({key: value for key, value in last.section.items() if key != "worlds"})
    except ValidationError as error:
        problem = error.errors()[0]
        raise BadInput(
            f"the store's last training has a setting that this Headrace does not take: train.{'.'.join(map(str, problem['loc']))}, "
            f"{problem['msg'].removeprefix('Value error, ')}; give a configuration with --config"
        ) from None


def _with_worlds_of(synthesis: SynthesisConfig, last: FlowSettings) -> SynthesisConfig:
    """The settings, with the worlds of the last synthesis and what was set for them."""
    named = {key: last.section[key] for key in _WORLD_KEYS if key in last.section} | synthesis.model_dump(exclude_unset=True)
    try:
        return SynthesisConfig.model_validate(named)
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise BadInput(f"the store's conversations are in {', '.join(last.worlds)}, but synthesize.{problem}") from None


def _training_worlds(store: Store, past: Sequence[FlowSettings], synthesised: Sequence[str]) -> tuple[str, ...]:
    """Worlds to train on, of a user's own world the version named last. synthesised: worlds of the synthesis that this run begins with."""
    defaults = CascadeConfig().worlds
    with_tasks = set(store.query("SELECT DISTINCT world FROM tasks")["world"])
    worlds: list[str] = []
    for one in past:
        if one.flow == "train":
            worlds = list(one.worlds)
        elif one.flow == "synthesize":
            is_sample = one.worlds == SynthesisConfig().worlds
            worlds += defaults if is_sample else [name for name in names_in(one.worlds) if name in with_tasks]
    worlds += synthesised
    if not worlds and with_tasks:
        worlds = [name for name in defaults if name in with_tasks] or sorted(with_tasks)
    versions = {name.partition("@")[0]: name for name in worlds}
    return tuple(versions.values()) or defaults


def settle_curation(config: Config, files: Sequence[str]) -> Config:
    """The configuration of a curation of these files, with `curate.ungrounded` true or false, and with worlds where the store has some.

    `ungrounded` null stands for true where files are named and the store has no conversations, so that no world was chosen. `worlds` null
    stands, where files are named, for the worlds of the store's last synthesis, unless they are the sample's: the generated sample queries
    are about the city and the shop.
    """
    store, curation, changes = Store(config.store), config.curate, dict[str, Any]()
    if curation.ungrounded is None:
        has_conversations = store.query("SELECT 1 FROM trajectories WHERE accepted LIMIT 1").height > 0
        changes["ungrounded"] = bool(files) and not has_conversations
    if curation.worlds is None and files:
        last = next((one for one in reversed(_past(store)) if one.flow == "synthesize"), None)
        if last is not None and last.worlds != SynthesisConfig().worlds:
            changes["worlds"] = admitted_names(last.worlds)
    return config.model_copy(update={"curate": curation.model_copy(update=changes)})


def for_curation(
    config: Config,
    *,
    column: str | None,
    context: Sequence[str] = (),
    keep: str | None,
    held_out: Sequence[str],
    ungrounded: bool | None,
    strict: bool,
    new: bool,
    focus: bool = False,
    worlds: Sequence[str] = (),
    id_patterns: Sequence[str] = (),
) -> Config:
    """The configuration, changed by the options of the command `curate`. None, empty and, but for `ungrounded`, False change nothing.

    Raises BadInput if `keep` is neither a number nor a share such as 1/10000, or a column is named twice.
    """
    funnel = config.curate
    ingest = _ingest(funnel.ingest, column, context, strict=strict)
    kept = funnel.ungrounded if ungrounded is None else ungrounded
    changes: dict[str, Any] = {"ingest": ingest, "ungrounded": kept, "only_new": new or funnel.only_new}
    if focus and not funnel.coverage.focus:
        funnel = funnel.model_copy(update={"coverage": funnel.coverage.model_copy(update={"focus": 1.0})})
    if keep is not None:
        changes |= _parse_keep(keep, funnel)
    if worlds:
        changes["worlds"] = tuple(worlds)
    if id_patterns:
        changes["ground"] = _with_patterns(funnel.ground, id_patterns)
    if held_out:
        held_out_sets = [
            name if name in SUITES else {"name": name, "file": name, "column": ingest.column} for name in dict.fromkeys(held_out)
        ]
        changes["contamination"] = ContaminationConfig.model_validate(funnel.contamination.model_dump() | {"held_out": held_out_sets})
    return config.model_copy(update={"curate": funnel.model_copy(update=changes)})


def _ingest(ingest: IngestConfig, column: str | None, context: Sequence[str], *, strict: bool) -> IngestConfig:
    named = {"column": column or ingest.column, "context": tuple(context) or ingest.context, "strict": strict or ingest.strict}
    try:
        return IngestConfig.model_validate(ingest.model_dump() | named)
    except ValidationError as error:
        raise BadInput(f"--context: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def _with_patterns(ground: GroundConfig, patterns: Sequence[str]) -> GroundConfig:
    try:
        return GroundConfig.model_validate(ground.model_dump() | {"id_patterns": tuple(patterns)})
    except ValidationError as error:
        raise BadInput(f"--id-pattern: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def _parse_keep(keep: str, funnel: FunnelConfig) -> dict[str, Any]:
    numerator, is_ratio, number = keep.replace(",", "").replace("_", "").rpartition("/")
    if not number.isdecimal() or int(number) < 1 or (is_ratio and numerator.strip() != "1"):
        raise BadInput(f"--keep {keep}: give a number of queries (500) or a share (1/10000)")
    if is_ratio:
        return {"keep_one_in": int(number)}
    return {"keep_one_in": None, "coverage": funnel.coverage.model_copy(update={"keep": int(number)})}
