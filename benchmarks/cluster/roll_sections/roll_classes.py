"""Our adapter for ROLL against ROLL's own classes, in `.venv-roll` (`make roll`): experts, masks, failed worlds, configurations.

200 tasks are played four times, two rollouts each, by scripted policies (`roll_play.py`):

- `roll_experts_accepted`: share of tasks that end with score 1 when the expert answers, both rollouts.
- `roll_noop_accepted`: the same for a policy that says nothing.
- `roll_mask_errors`: tokens of both plays whose mask in the batch is not what the tokens themselves say (`roll_masks.py`).
- `roll_failure_counted`: rollouts of permanently broken worlds that are in the batch, where a tenth of the worlds that are called breaks at
  the first rollout, and another tenth always. Without our filter of groups they must be there: `roll_failure_counted_unfiltered`.
- `roll_config_rejected`: rendered files (each loss that is rendered for ROLL, in four shapes) that ROLL's strict parser or asserts refuse.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cluster.drawn_tasks import draw_tasks, write_release
from benchmarks.cluster.roll_sections import roll_stage as stage
from benchmarks.harness import Deadline, Figures, fail
from storage.errors import HeadraceError
from storage.records import Task
from train.backends.cluster_shape import RENDERED_LOSSES, ClusterShape
from train.backends.render_stage import render
from train.spec import RLSettings

KEYS = (
    *("roll_experts_accepted", "roll_noop_accepted", "roll_mask_errors"),
    *("roll_failure_counted", "roll_failure_counted_unfiltered", "roll_config_rejected"),
)
MINUTES = 10
TASKS, GROUPS, DRAWS = 200, 8, 2
SILENCE = "<|im_end|>"

SHAPES = (
    ClusterShape(nodes=1, gpus_per_node=1, tensor_parallel=1),
    ClusterShape(nodes=1, gpus_per_node=8, tensor_parallel=1),
    ClusterShape(nodes=2, gpus_per_node=8, tensor_parallel=2),
    ClusterShape(nodes=4, gpus_per_node=4, tensor_parallel=4, prompt_tokens=2048, response_tokens=30720),
)


def measure(deadline: Deadline) -> Figures:
    if reason := stage.missing():
        fail(reason)
    with tempfile.TemporaryDirectory() as scratch:
        tasks = draw_tasks(TASKS)
        folder = Path(scratch) / "stage"
        stage.write_stage(folder, tasks, groups=GROUPS, draws=DRAWS)
        deadline.allows(MINUTES / 2)
        figures = _plays(folder, tasks)
        figures["roll_config_rejected"] = float(len(rejected(Path(scratch) / "configs", tasks)))
    return figures


def _plays(folder: Path, tasks: Sequence[Task]) -> Figures:
    experts = {task.id: stage.expert_texts(task) for task in tasks}
    base = {"gpus": 1, "openings": stage.openings(tasks)}
    broken = {**base, "answers": experts, "broken": broken_worlds(experts)}
    silent = {task.id: [SILENCE] for task in tasks}
    plays = [{**base, "answers": experts}, {**base, "answers": silent}, broken, {**broken, "filtered": False}]
    expert, noop, failing, unfiltered = stage.played(folder, *plays)
    for name, each in {"expert": expert, "no-op": noop, "broken worlds": failing, "unfiltered": unfiltered}.items():
        print(f"    {name}: {json.dumps({key: value for key, value in each.items() if key != 'accepted_tasks'})}", flush=True)
    return {
        "roll_experts_accepted": expert["accepted"] / TASKS,
        "roll_noop_accepted": noop["accepted"] / TASKS,
        "roll_mask_errors": float(expert["mask_errors"] + noop["mask_errors"]),
        "roll_failure_counted": float(failing["failed"]),
        "roll_failure_counted_unfiltered": float(unfiltered["failed"]),
    }


def broken_worlds(experts: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """A tenth of the tasks whose expert calls a tool fail once, and another tenth always."""
    calling = [task for task, texts in experts.items() if "<tool_call>" in texts[0]]
    return dict.fromkeys(calling[::10], 1) | dict.fromkeys(calling[5::10], -1)


def rejected(folder: Path, tasks: Sequence[Task]) -> list[str]:
    """What ROLL says of each rendered file that it refuses; a file with a misspelt key must be among those that it reads and refuses."""
    folder.mkdir(parents=True)
    stage.write_policy(folder / "policy", tasks)
    store, release = write_release(folder / "store", tasks)
    files: list[dict[str, Any]] = []
    for number, shape in enumerate(SHAPES):
        for loss in RENDERED_LOSSES:
            settings = RLSettings(loss=loss, max_steps=10, tasks_a_step=16, draws=8, learning_rate=1e-6)
            path = folder / f"{loss}-{number}.yaml"
            rendered = render("roll", stage.spec_of(store, release, folder, settings), shape, adapter=stage.MANAGER)
            path.write_text(rendered.files["pipeline.yaml"])
            files.append({"path": str(path), "gpus": shape.gpus_per_node})
    misspelt = folder / "misspelt.yaml"
    misspelt.write_text(path.read_text() + "token_level_loss: true\n")
    files.append({"path": str(misspelt), "gpus": shape.gpus_per_node})
    (folder / "files.json").write_text(json.dumps(files))
    stage.run_in_roll("benchmarks.cluster.roll_sections.roll_configs", str(folder), scratch=folder / "scratch")
    refused: list[str] = json.loads((folder / "refused.json").read_text())
    for one in refused:
        print(f"    {one[:300]}", flush=True)
    if not any(one.startswith(misspelt.name) for one in refused):
        raise HeadraceError("ROLL's strict parser took a misspelt key: this measures nothing")
    return [one for one in refused if not one.startswith(misspelt.name)]
