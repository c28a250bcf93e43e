"""The configuration of all flows: one model per section, each defined beside the functions that it configures.

One file configures every flow, so one flow's run can pass it to the next. The defaults are those of the sample.
Unknown keys are refused (`flows/yaml_config.py` suggests the nearest valid key). The environment is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from filters.funnel import FunnelConfig
from filters.steps.selection.contamination import BFCL, ContaminationConfig
from flows import yaml_config
from storage.errors import BadInput
from synth.haystack.generate import HaystackConfig, wordings
from synth.run.config import SynthesisConfig
from train.config import CascadeConfig


class Config(BaseModel):
    """All settings of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: Path = Field(
        Path("runs/sample/store"), description="Folder of the store; the report and the generated queries are written next to it."
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

    Raises BadInput: see `yaml_config.load` and `synth.haystack.generate.wordings`.
    """
    config = yaml_config.load(file, Config) if file is not None else Config()
    config = config.model_copy(update={"store": store or config.store, "families": families or config.families})
    if config.families is not None:
        wordings(config.families)
    return config


def for_curation(
    config: Config,
    *,
    column: str | None,
    keep: str | None,
    held_out: Sequence[str],
    ungrounded: bool,
    strict: bool,
    new: bool,
    focus: bool = False,
) -> Config:
    """The configuration, changed by the options of the command `curate`. None, empty and False change nothing.

    Raises BadInput if `keep` is neither a number nor a share such as 1/10000.
    """
    funnel = config.curate
    ingest = funnel.ingest.model_copy(update={"column": column or funnel.ingest.column, "strict": strict or funnel.ingest.strict})
    changes: dict[str, Any] = {"ingest": ingest, "ungrounded": ungrounded or funnel.ungrounded, "only_new": new or funnel.only_new}
    if focus and not funnel.coverage.focus:
        funnel = funnel.model_copy(update={"coverage": funnel.coverage.model_copy(update={"focus": 1.0})})
    if keep is not None:
        changes |= _parse_keep(keep, funnel)
    if held_out:
        held_out_sets = [
            name if name == BFCL else {"name": name, "file": name, "column": ingest.column} for name in dict.fromkeys(held_out)
        ]
        changes["contamination"] = ContaminationConfig.model_validate(funnel.contamination.model_dump() | {"held_out": held_out_sets})
    return config.model_copy(update={"curate": funnel.model_copy(update=changes)})


def _parse_keep(keep: str, funnel: FunnelConfig) -> dict[str, Any]:
    numerator, is_ratio, number = keep.replace(",", "").replace("_", "").rpartition("/")
    if not number.isdecimal() or int(number) < 1 or (is_ratio and numerator.strip() != "1"):
        raise BadInput(f"--keep {keep}: give a number of queries (500) or a share (1/10000)")
    if is_ratio:
        return {"keep_one_in": int(number)}
    return {"keep_one_in": None, "coverage": funnel.coverage.model_copy(update={"keep": int(number)})}
