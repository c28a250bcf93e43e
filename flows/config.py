"""A configuration file: the sum of the models that stand beside the functions they configure.

One file configures every flow, so that a run of one flow can hand it on to the next. Without a file the defaults are those of the sample.
Unknown keys are refused (`flows/yaml_config.py` says which key was meant); nothing is read from the environment.
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
        Path("runs/sample/store"), description="Folder of the store; the report and the generated queries are written beside it."
    )
    synthesize: SynthesisConfig = Field(
        SynthesisConfig(), description="Synthesis: conversations over the worlds' tools, executed and verified."
    )
    haystack: HaystackConfig = Field(HaystackConfig(), description="The generated queries, used where no files are given.")
    families: Path | None = Field(None, description="YAML file with other wordings for the generated queries; null: the worlds' own.")
    curate: FunnelConfig = Field(FunnelConfig(), description="The funnel, from raw queries to admitted tasks.")
    train: CascadeConfig = Field(CascadeConfig(), description="The cascade: training stages, with their probes, evaluations and gate.")

    @property
    def folder(self) -> Path:
        """Where everything of a run lies that is not in its store."""
        return self.store.parent

    @property
    def report(self) -> Path:
        return self.folder / "report.html"


def read(file: Path | None, *, store: Path | None = None, families: Path | None = None) -> Config:
    """The configuration in a file (None: the defaults), with what the command line says instead.

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
    """The configuration with what the command line of `curate` says; what it does not say stays.

    Raises BadInput: `keep` is neither a number nor one in so many.
    """
    funnel = config.curate
    ingest = funnel.ingest.model_copy(update={"column": column or funnel.ingest.column, "strict": strict or funnel.ingest.strict})
    said: dict[str, Any] = {"ingest": ingest, "ungrounded": ungrounded or funnel.ungrounded, "only_new": new or funnel.only_new}
    if focus and not funnel.coverage.focus:
        funnel = funnel.model_copy(update={"coverage": funnel.coverage.model_copy(update={"focus": 1.0})})
    if keep is not None:
        said |= _kept(keep, funnel)
    if held_out:
        sets = [name if name == BFCL else {"name": name, "file": name, "column": ingest.column} for name in dict.fromkeys(held_out)]
        said["contamination"] = ContaminationConfig.model_validate(funnel.contamination.model_dump() | {"held_out": sets})
    return config.model_copy(update={"curate": funnel.model_copy(update=said)})


def _kept(keep: str, funnel: FunnelConfig) -> dict[str, Any]:
    one, is_ratio, number = keep.replace(",", "").replace("_", "").rpartition("/")
    if not number.isdecimal() or int(number) < 1 or (is_ratio and one.strip() != "1"):
        raise BadInput(f"--keep {keep}: give a number of queries (500), or one in so many (1/10000)")
    if is_ratio:
        return {"keep_one_in": int(number)}
    return {"keep_one_in": None, "coverage": funnel.coverage.model_copy(update={"keep": int(number)})}
