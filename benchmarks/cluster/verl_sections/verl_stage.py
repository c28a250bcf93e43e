"""Writes what `verl_play.py` plays: a rendered RL stage and an SFT stage over the same tasks, a policy, and the experts' answers.

`python -m benchmarks.cluster.verl_sections.verl_stage FOLDER` writes the stages of 24 tasks.
The policy has random weights, and Qwen2.5's chat template with a tokenizer that is trained on the experts' words.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.cluster.drawn_tasks import draw_tasks, write_release
from storage.records import JSON, Message, Task
from storage.releases.export import export
from storage.releases.export_rows import DEFAULT_FORM, chat_messages
from synth.conversations.expert import expert_trajectory
from synth.worlds import WORLDS
from tests.train.base_folders import write_base
from train.backends.cluster_shape import RENDERED_LOSSES, ClusterShape
from train.backends.render_stage import Rendered, render
from train.spec import LoRASettings, LossName, RLSettings, SFTSettings, StageSpec

SHAPE = ClusterShape(nodes=1, gpus_per_node=1, tensor_parallel=1, prompt_tokens=16384, response_tokens=8192)
RL = RLSettings(max_steps=10, tasks_a_step=8, draws=4, learning_rate=1e-6, max_turns=12, max_tokens=1024, loss="grpo")
SFT = SFTSettings(max_steps=3, batch_size=4, learning_rate=1e-4)


def write_stage(folder: Path, tasks: Sequence[Task]) -> str:
    """Writes `store/`, `policy/`, `rl/`, `sft/` and `experts.json` into a folder; returns the id of the release.

    `experts.json`: index of a row -> `answers`, the texts that its expert says; `whole`, its conversation as the chat template writes it.
    """
    store, release = write_release(folder / "store", tasks)
    experts = {task.id: expert_trajectory(WORLDS[task.world], task).messages for task in tasks}
    texts = [message.content or "" for messages in experts.values() for message in messages]
    write_base(folder / "policy", texts, positions=2 * SHAPE.context_tokens)
    for name, settings in (("rl", {"rl": RL}), ("sft", {"sft": SFT, "split": "seed"})):
        spec = _spec(folder, store.root, release, name, **settings)
        rendered = render("verl", spec, SHAPE)
        (folder / name).mkdir()
        export(store, release, folder / name / "data", "verl")
        for file, text in rendered.files.items():
            (folder / name / file).write_text(text)
    rows = pl.read_parquet(folder / "rl" / "data" / "rl.prompts.parquet").to_dicts()
    written = {str(row["extra_info"]["index"]): _written(folder / "policy", row, experts) for row in rows}
    (folder / "experts.json").write_text(json.dumps(written, ensure_ascii=False))
    return release


def _spec(folder: Path, store: Path, release: str, name: str, **changes: Any) -> StageSpec:
    algorithm = "sft" if "sft" in changes else "rl"
    fields = {"name": name, "algorithm": algorithm, "split": "rl", "store": store, "release_id": release, "model_in": folder / "policy"}
    return StageSpec(**{**fields, "model_out": folder / name / "model", **changes})


def _written(policy: Path, row: Mapping[str, Any], experts: Mapping[str, Sequence[Message]]) -> dict[str, JSON]:
    """The expert's answers and its whole conversation as texts, by the policy's chat template alone."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(policy)
    task = Task.model_validate_json(row["extra_info"]["task"])
    messages = chat_messages(experts[task.id], DEFAULT_FORM)
    tools = json.loads(row["extra_info"]["tools"]) or None

    def text(upto: int, *, opens: bool) -> str:
        written: str = tokenizer.apply_chat_template(messages[:upto], tools=tools, tokenize=False, add_generation_prompt=opens)
        return written

    answers = [
        text(place + 1, opens=False).removeprefix(text(place, opens=True)).removesuffix("\n")
        for place, message in enumerate(messages)
        if message["role"] == "assistant"
    ]
    return {"answers": answers, "whole": text(len(messages), opens=False).removesuffix("\n")}


def write_configurations(folder: Path, release: str, losses: Sequence[LossName] = RENDERED_LOSSES) -> int:
    """Composes stages of these losses and of SFT, with and without LoRA, for two clusters; returns how many.

    Files: NAME.yaml in the folder `configurations`.
    """
    (folder / "configurations").mkdir()
    count = 0
    for name, rendered in _configurations(folder, folder / "store", release, losses):
        (folder / "configurations" / f"{name}.yaml").write_text(rendered.files["composed.yaml"])
        count += 1
    return count


def _configurations(folder: Path, store: Path, release: str, losses: Sequence[LossName]) -> Iterator[tuple[str, Rendered]]:
    lora = LoRASettings(rank=8, alpha=16)
    shapes = {
        "one": SHAPE,
        "two": ClusterShape(nodes=2, gpus_per_node=4, tensor_parallel=2, prompt_tokens=4096, response_tokens=4096),
    }
    for (shape_name, shape), adapters in product(shapes.items(), (None, lora)):
        ending = f"{shape_name}{'-lora' if adapters else ''}"
        settings = SFT.model_copy(update={"lora": adapters, "batch_size": 8})
        yield f"sft-{ending}", render("verl", _spec(folder, store, release, "sft", sft=settings, split="seed"), shape)
        for loss in losses:
            changed = RL.model_copy(update={"lora": adapters, "loss": loss, "beta": 0.01 if shape_name == "two" else 0.0})
            yield f"{loss}-{ending}", render("verl", _spec(folder, store, release, "rl", rl=changed), shape)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_stage(folder, draw_tasks(24))
    print(f"written: {folder}/sft and {folder}/rl")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
