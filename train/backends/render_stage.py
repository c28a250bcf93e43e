"""Renders the files that run a stage with verl or ROLL on a cluster, as texts, checked before anything is written.

One idea: the files are a function of the stage's spec and the cluster's shape. Rendering reads the release and the input policy's folder to
refuse what could not be trained, and writes nothing. The caller writes the files and, into the folder `data`, the rows
(`storage/releases/export.py`, format of the same name). All files must have the same path on every node.

What it does not do: submit the stage. The `adapter` plays our worlds in the engine's process, with `train/backends/environment.py`;
Headrace has one for each engine (`ADAPTERS`).
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
from train.backends.cluster_shape import ClusterShape, check_settings, check_stage
from train.backends.roll import roll_pipeline as roll
from train.backends.verl import verl_overrides as verl
from train.spec import StageSpec

RenderEngine = Literal["verl", "roll"]
ADAPTERS: Mapping[RenderEngine, Mapping[str, str]] = {
    "verl": {"rl": "train.backends.verl.agent_loop.HeadraceLoop", "sft": "storage.releases.verl_dataset.ExportedConversations"},
    "roll": {"rl": "train.backends.roll.proxy_env_manager.HeadraceEnvManager"},
}
"""Engine -> kind of stage -> the adapter that Headrace has for it: a class that the engine imports."""
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_LARGE_WIDTH, _LARGE_RATE = 512, 1e-4


@dataclass(frozen=True)
class Rendered:
    """Files of a stage.

    files: file name -> text.
    checked: which checks were made.
    notes: what the user should know before submitting.
    """

    files: Mapping[str, str]
    checked: str
    notes: tuple[str, ...]


def render(
    engine: RenderEngine,
    spec: StageSpec,
    shape: ClusterShape,
    *,
    adapter: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Rendered:
    """The files of a stage, for the parent folder of `spec.model_out`.

    adapter: dotted path of the class in the engine's image that adapts our environment (for SFT, our rows) to the engine's interface;
        None: Headrace's own.
    overrides: dotted keys of the engine -> values.

    Raises:
        BadInput: the release, split or policy cannot be trained on; the engine cannot run the stage; the engine lacks a key; or a rule for
            batches or devices is broken.
    """
    check_stage(spec, shape, load_split(Store(spec.store), spec.release_id, spec.split))
    return draft(engine, spec, shape, adapter=adapter, overrides=overrides)


def draft(
    engine: RenderEngine,
    spec: StageSpec,
    shape: ClusterShape,
    *,
    adapter: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Rendered:
    """As `render`, without a look at the release and the input policy, which a dry run does not have yet.

    Raises:
        BadInput: the engine cannot run the stage, lacks a key, or a rule for batches or devices is broken.
    """
    adapter = ADAPTERS[engine].get(spec.algorithm, ADAPTERS[engine]["rl"]) if adapter is None else adapter
    if not _CLASS.fullmatch(adapter):
        raise BadInput(f"adapter {adapter!r} is no dotted path of a class, such as team.worlds.HeadraceLoop")
    check_settings(spec)
    folder = spec.model_out.absolute().parent
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
    """The script that submits the Ray Job. The job requests no GPU, because the engine allocates them, and a driver with GPUs of its own
    would not see the others. Ray accepts an id once; a failed job is submitted again under another id by `submit.sh 2`."""
    job = f"headrace-{re.sub(r'[^A-Za-z0-9_-]', '-', spec.name)}-{content_id('job', dict(files))[-8:]}"
    entry = shlex.quote(str(folder / "entrypoint.sh"))
    environment = f" --runtime-env {shlex.quote(str(folder / 'runtime_env.yaml'))}" if "runtime_env.yaml" in files else ""
    return (
        "#!/usr/bin/env bash\n"
        'exec ray job submit --address "${RAY_ADDRESS:?name the cluster, e.g. http://HEAD:8265}" \\\n'
        f'  --submission-id "{job}${{1:+-$1}}"{environment} --no-wait -- bash {entry}\n'
    )


def _notes(spec: StageSpec) -> list[str]:
    texts = []
    rate = spec.settings.learning_rate
    config = spec.model_in / "config.json" if spec.model_in is not None else None
    width = json.loads(config.read_text()).get("hidden_size", 0) if config is not None and config.is_file() else 0
    if width >= _LARGE_WIDTH and rate > _LARGE_RATE:
        texts.append(f"learning_rate {rate:g} suits the tiny policy; for a model {width} wide it is probably far too high")
    if spec.settings.micro_batch_size is not None:
        texts.append("micro_batch_size is not rendered: the engine's own keys say what a GPU holds at once")
    if spec.sft is not None and spec.sft.leave_out != "nothing":
        texts.append(
            "the engine learns every turn of the assistant, also those whose call failed; our own trainer leaves them out (leave_out)"
        )
    if spec.rl is not None:
        texts.append("tasks are the split's own, drawn evenly and again every epoch; on this machine RL draws fresh siblings by weight")
    return texts
