"""The lock file beside a live world's YAML: what was measured and found, as JSON; `headrace worlds connect` and `explore` write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from storage.errors import BadInput
from storage.files import replace_atomically
from storage.records import JSON
from synth.worlds.live.live_spec import LiveSpec, Restore
from synth.worlds.live.plans import PlanCall

VERSION = 1
Use = Literal["synthesis", "verification", "rl"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LiveTool(_Part):
    """A tool as it is offered. changes_state: by hint, by the spec, or as execution showed."""

    name: str
    description: str
    parameters: dict[str, JSON]
    output: dict[str, JSON] | None = None
    changes_state: bool


class Check(_Part):
    """A check of conformance. holds: None where it could not be tried. detail: what was seen."""

    name: str
    holds: bool | None
    detail: str = ""


class FoundSlot(_Part):
    """A slot of a found intent. label: what requests call it. kind: of its values. is_entity: it names an individual."""

    name: str
    label: str
    kind: Literal["text", "number", "id"] = "text"
    is_entity: bool = False


class FoundIntent(_Part):
    """A kind of plan that was found by execution.

    calls: the plan. told: the path to the value that the answer tells, from the result of the last call; None for an act.
    says: templates of requests. examples: slots of plans that were admitted.
    """

    name: str
    calls: tuple[PlanCall, ...]
    told: tuple[Any, ...] | None = None
    told_label: str = ""
    slots: tuple[FoundSlot, ...]
    says: tuple[str, ...]
    examples: tuple[dict[str, JSON], ...]


class Lock(_Part):
    """What is known of a live world by measurement.

    spec: id of the spec that was measured.
    restore: how a copy gets back. reset_ms, call_ms: medians.
    uses: what the world may be used for.
    """

    version: int = VERSION
    spec: str
    tools: tuple[LiveTool, ...]
    instructions: str = ""
    folder: str = ""
    """Digest of the start folder, and of the description of the API."""
    restore: Restore
    checks: tuple[Check, ...] = ()
    uses: tuple[Use, ...] = ()
    reset_ms: float = 0.0
    call_ms: float = 0.0
    intents: tuple[FoundIntent, ...] = ()

    def holds(self, check: str) -> bool:
        """Whether a check of this name was tried and held."""
        return any(each.name == check and each.holds for each in self.checks)


def lock_path(spec_path: Path) -> Path:
    return spec_path.with_suffix(".lock.json")


def write_lock(spec_path: Path, lock: Lock) -> None:
    """Writes the lock file beside a spec, whole or not at all."""
    text = json.dumps(lock.model_dump(mode="json"), ensure_ascii=False, indent=1) + "\n"
    replace_atomically(lock_path(spec_path), lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_lock(spec_path: Path, spec: LiveSpec) -> Lock:
    """The lock of a spec.

    Raises:
        BadInput: there is none, it cannot be read, or the spec has changed since it was measured.
    """
    path = lock_path(spec_path)
    try:
        lock = Lock.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{spec_path} has not been measured yet; run: headrace worlds connect file {spec_path}") from None
    except (OSError, ValidationError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read ({' '.join(str(error).split())[:120]}); delete it and connect again") from None
    if lock.spec != spec.id or lock.version != VERSION:
        raise BadInput(f"{spec_path} has changed since it was measured; run: headrace worlds connect file {spec_path}")
    return lock
