"""A stage for an engine of its own on a cluster, verl or ROLL: every file that starts it, as text, checked before anything is written.

One idea: rendering is a function of the stage's spec and the cluster's shape. It opens the release and the input policy's folder to refuse
what could not be trained, and writes nothing; who calls it writes the files, and beside them the rows (`storage/releases/export.py`, format
of the same name) into the folder `data`. All of it must lie at the same path on every node.

What it does not do: submit. The classes that play our worlds inside an engine's process are the caller's `adapter`; what they implement is
`train/backends/environment.py`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from storage.errors import BadInput
from storage.records import content_id
from storage.releases.release import load_split
from storage.store import Store
from train.backends import roll, verl
from train.backends.cluster_shape import ClusterShape, check_stage
from train.spec import StageSpec

RenderEngine = Literal["verl", "roll"]
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_LARGE_WIDTH, _LARGE_RATE = 512, 1e-4


@dataclass(frozen=True)
class Rendered:
    """File name -> text; by what it was checked; and what a person should know before submitting it."""

    files: Mapping[str, str]
    checked: str
    notes: tuple[str, ...]


def render(
    engine: RenderEngine,
    spec: StageSpec,
    shape: ClusterShape,
    *,
    adapter: str,
    overrides: Mapping[str, Any] | None = None,
) -> Rendered:
    """The files of a stage; they are meant for the folder that `spec.model_out` is in.

    adapter: dotted path of the class, in the engine's image, that puts our environment (for SFT, our rows) behind its interface.
    overrides: other values at the engine's own keys, dotted.

    Raises:
        BadInput: release, split or policy are not fit for it, the engine cannot run such a stage, a key that the engine does not have,
            or a rule of batches or devices that does not hold.
    """
    if not _CLASS.fullmatch(adapter):
        raise BadInput(f"adapter {adapter!r} is no dotted path of a class, such as team.worlds.HeadraceLoop")
    folder = spec.model_out.absolute().parent
    check_stage(spec, shape, load_split(Store(spec.store), spec.release_id, spec.split))
    if engine == "roll":
        content = roll.with_overrides(roll.keys(spec, shape, folder=folder, adapter=adapter), overrides or {})
        roll.check(content)
        assert spec.rl is not None
        files, checked, notes = roll.files(content, spec, shape), roll.CHECKED, roll.notes(spec.rl)
    else:
        values = verl.overrides(spec, shape, folder=folder, adapter=adapter, changes=overrides)
        composed = verl.compose(values, spec.algorithm)
        verl.check_rules(values)
        files, checked, notes = (
            verl.files(values, spec, folder, adapter),
            verl.CHECKED if composed else verl.UNCHECKED,
            verl.notes(spec),
        )
        files |= {"composed.yaml": composed} if composed else {}
    files["submit.sh"] = _submission(spec, files, folder)
    notes = [*notes, *_notes(spec)]
    files["notes.txt"] = "".join(f"- {one}\n" for one in [checked, *notes])
    return Rendered(files, checked, tuple(notes))


def _submission(spec: StageSpec, files: Mapping[str, str], folder: Path) -> str:
    """The Ray Job. It asks for no GPU of its own: the engine claims them, and a driver that had claimed some would hide the others. Ray
    takes an id once, so a job that has failed is submitted again under another: `submit.sh 2`."""
    job = f"headrace-{re.sub(r'[^A-Za-z0-9_-]', '-', spec.name)}-{content_id('job', dict(files))[-8:]}"
    entry = shlex.quote(str(folder / "entrypoint.sh"))
    environment = f" --runtime-env {shlex.quote(str(folder / 'runtime_env.yaml'))}" if "runtime_env.yaml" in files else ""
    return (
        "#!/usr/bin/env bash\n"
        'exec ray job submit --address "${RAY_ADDRESS:?name the cluster, e.g. http://HEAD:8265}" \\\n'
        f'  --submission-id "{job}${{1:+-$1}}"{environment} --no-wait -- bash {entry}\n'
    )


def _notes(spec: StageSpec) -> list[str]:
    notes = []
    rate = spec.rl.learning_rate if spec.rl else spec.sft.learning_rate if spec.sft else 0.0
    assert spec.model_in is not None
    width = json.loads((spec.model_in / "config.json").read_text()).get("hidden_size", 0)
    if width >= _LARGE_WIDTH and rate > _LARGE_RATE:
        notes.append(f"learning_rate {rate:g} suits the tiny policy; for a model {width} wide it is probably far too high")
    if (spec.rl.micro_batch_size if spec.rl else spec.sft and spec.sft.micro_batch_size) is not None:
        notes.append("micro_batch_size is not rendered: the engine's own keys say what a GPU holds at once")
    if spec.rl is not None:
        notes.append("tasks are the split's own, drawn evenly and again every epoch; on this machine RL draws fresh siblings by weight")
    return notes
