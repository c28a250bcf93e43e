"""The stages of a cascade: a list; each stage has an algorithm, a split, a parent, a backend and settings.

One idea: a configuration lists the differences from the default stages (sft1 -> sft2 -> rl). An entry with a default name changes that
stage's keys; another name adds a stage; `skip` leaves a stage out. A full list, written and read again, gives the same stages.
Whether a stage is routed by a probe follows from its split alone: `SPLITS`.

What it does not do: train (`train/cascade.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from train.backends.named import BackendName
from train.spec import RLSettings, SFTSettings


@dataclass(frozen=True)
class Split:
    """A split that a stage can train on.

    release: name of the release.
    part: name of the split in the release.
    is_routed: whether the release is made from a probe of a stage before.
    """

    release: str
    part: str
    is_routed: bool


SPLITS = {"seed": Split("seed", "seed", False), "second": Split("second", "sft2", True), "rl": Split("rl", "rl", True)}


class _Place(BaseModel):
    """A stage's place in the cascade."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", description="Of the stage and of the policy that it makes.")
    algorithm: str = Field(description="sft, or rl.")
    split: str = Field(description="What it trains on: seed, second (the same and own traces; for SFT), or rl (tasks; for RL).")
    parent: str | None = Field(description="Stage whose policy it goes on from; none: a fresh policy. Splits second and rl need one.")
    backend: BackendName | None = Field(None, description="What runs it; none: `train.backend`.")
    skip: bool = Field(False, description="Whether the cascade leaves it out.")


class SFTStage(SFTSettings, _Place):
    """A stage of supervised fine-tuning."""

    algorithm: Literal["sft"] = Field(description="sft, or rl.")
    split: Literal["seed", "second"] = Field(
        description="What it trains on: seed (synthesised conversations and experts), or second (these and own traces)."
    )

    @property
    def settings(self) -> SFTSettings:
        return SFTSettings(**{name: getattr(self, name) for name in SFTSettings.model_fields})


class RLStage(RLSettings, _Place):
    """A stage of reinforcement learning."""

    algorithm: Literal["rl"] = Field(description="sft, or rl.")
    split: Literal["rl"] = Field(description="What it trains on: rl (tasks that the probe found uncertain, and their siblings).")
    max_tokens: int | None = Field(  # type: ignore[assignment]
        None, ge=1, description="Longest answer, in tokens; a longer one has failed; null: `train.answer_tokens`."
    )

    @property
    def settings(self) -> RLSettings:
        given = {name: getattr(self, name) for name in RLSettings.model_fields}
        return RLSettings(**{name: value for name, value in given.items() if name != "max_tokens" or value is not None})


Stage = SFTStage | RLStage

DEFAULT: tuple[Stage, ...] = (
    SFTStage(name="sft1", algorithm="sft", split="seed", parent=None, max_steps=220, plateau_window=25),
    SFTStage(name="sft2", algorithm="sft", split="second", parent="sft1", max_steps=60, learning_rate=1e-3),
    RLStage(name="rl", algorithm="rl", split="rl", parent="sft2", max_steps=120),
)
"""Seed SFT until the loss is flat; a short second SFT with a low learning rate, to keep entropy for RL; RL on fresh siblings."""


def field_error(message: str, *place: int | str) -> PydanticCustomError:
    """An error at this place below the validated field; `flows/yaml_config.py` adds the line of the file."""
    return PydanticCustomError("stages", "{message}", {"message": message, "place": place})


def _merge(given: Any) -> Any:
    """The entries, with defaults filled in, in their order; then the default stages that no entry names."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        return given
    defaults = {stage.name: stage.model_dump() for stage in DEFAULT}
    entries: list[Any] = [entry.model_dump() if isinstance(entry, BaseModel) else entry for entry in given]
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise field_error("a stage is a mapping with a `name`", index)
        default = defaults.get(entry["name"], {})
        if entry.get("algorithm", default.get("algorithm")) is None:
            problem = f"{entry['name']} is none of the default stages ({', '.join(defaults)}): say its algorithm, split and parent"
            raise field_error(problem, index, "name")
        if entry.get("algorithm", default.get("algorithm")) == default.get("algorithm"):
            entries[index] = default | dict(entry)
    return [*entries, *(stage for name, stage in defaults.items() if name not in {entry["name"] for entry in entries})]


def _check(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Refuses a repeated name, an unknown parent, a circle of parents, and an empty list."""
    places: dict[str, int] = {}
    for index, stage in enumerate(stages):
        if stage.name == "latest":
            raise field_error("latest stands for the policy promoted last; choose another name", index, "name")
        if stage.name in places:
            raise field_error(
                f"there are two stages of this name ({stage.name}); name one otherwise, or make one entry of them", index, "name"
            )
        places[stage.name] = index
    running = {stage.name: stage for stage in stages if not stage.skip}
    if not running:
        raise field_error("every stage is skipped; a cascade has at least one")
    for name, stage in running.items():
        _check_parent(stage, running, places)
        chain = [name]
        while (parent := running[chain[-1]].parent) in running:
            if parent == name:
                raise field_error(f"the stages go in a circle: {' <- '.join([*chain, name])}", places[name], "parent")
            if parent in chain:
                break
            chain.append(parent)
    return stages


def _check_parent(stage: Stage, running: Mapping[str, Stage], places: Mapping[str, int]) -> None:
    """Refuses a parent that does not run, and a routed split without a parent."""
    place = (places[stage.name], "parent")
    if stage.parent is None and SPLITS[stage.split].is_routed:
        raise field_error(f"the split {stage.split} is what a probe finds: name a stage that comes before {stage.name}", *place)
    if stage.parent is not None and stage.parent not in running:
        others = ", ".join(other for other in running if other != stage.name) or "none"
        raise field_error(f"{stage.parent} {'is skipped' if stage.parent in places else 'is no stage'}; there are {others}", *place)


Stages = Annotated[
    tuple[Annotated[Stage, Field(discriminator="algorithm")], ...],
    BeforeValidator(_merge),
    AfterValidator(_check),
    WithJsonSchema({"type": "array", "items": {"type": "object", "required": ["name"]}}),
]
"""The JSON schema must allow entries with defaults left out, because deployments validate their parameters with it."""


def order_stages(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages that run, each after its parent; default stages first where parents allow, the others in the list's order."""
    names = [stage.name for stage in DEFAULT]
    running = {stage.name: stage for stage in stages if not stage.skip}
    by_name: dict[str, Stage] = {}

    def add(stage: Stage) -> None:
        if stage.name not in by_name:
            if stage.parent is not None:
                add(running[stage.parent])
            by_name[stage.name] = stage

    for stage in sorted(running.values(), key=lambda one: names.index(one.name) if one.name in names else len(names)):
        add(stage)
    return tuple(by_name.values())
