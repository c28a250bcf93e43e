"""Entry point of a training stage: `python -P -m train.run SPEC`, on this machine or as a job on a cluster.

One idea: read the spec and the split, train, and write the results last: the model folder appears by a rename, then `result.json`. A killed
stage leaves no result. It starts again from its input policy or from its last checkpoint (`train/checkpoints.py`), with the same result.
With one torch thread and fixed seeds, equal specs give equal weights on one machine (see `weights_hash`).

Beside the model folder: `metrics.jsonl`, one row per step, written during training; `tags.jsonl`, one row per task that RL drew siblings
of; `result.json`, the summary for the cascade. With several processes (`accelerate launch`, `torchrun`) one process writes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    from synth.gc_paused import collect_seldom

    collect_seldom()  # before the large libraries below are imported

from filters.code_hash import code_hash
from storage.errors import BadInput, HeadraceError
from storage.files import disk_errors, replace_atomically, sync_dir, sync_file
from storage.health.weights import check_stage_weights, weights_hash
from storage.records import Message, Tool, content_id
from storage.releases.release import ReleasedItem, Setting, load_split
from storage.store import Store
from synth.context.offered_tools import CONTEXT_TOOLS
from synth.engines.local.model_folder import check_folder
from synth.worlds import WORLDS
from synth.worlds.stored_worlds import register_stored
from train.backends.base import TAGS, summary, write_rows
from train.child_process import dying_with_parent
from train.device import is_main, processes, settle, uses_bf16
from train.models.adapters import add_adapters, merge_adapters, without_wrapper
from train.models.sharding import is_sharded, whole_weights
from train.rl.task_sampler import FreshTasks, routed_tasks
from train.spec import CHECKPOINTS, METRICS, StageSpec

if TYPE_CHECKING:
    from train.rl.rl import BatchQueue


def run(spec: StageSpec) -> dict[str, Any]:
    """Runs a stage and returns the content of `result.json`; an empty dict in a process that does not write.

    weights_hash: SHA-256 of the weights. metrics: summary, with the loss on general conversations before and after, if the release has
    some (`train/measure/forgetting.py`). notes: for the user. code_hash: of the code that ran, which may differ on a cluster.

    Raises:
        BadInput: the release, the split, a world or the input policy is missing, or the policy's folder is incomplete (`check_folder`) or
            damaged.
        HeadraceError: the split has no rows for this algorithm, the training diverged, or the disk is full.
    """
    settle()
    from train.measure.forgetting import general_loss, held_out_chats

    store = Store(spec.store)
    register_stored(store)
    items = load_split(store, spec.release_id, spec.split)
    model, tokenizer = _policy(spec, items)
    if spec.settings.lora is not None:
        model = add_adapters(model, spec.settings.lora, spec.seed)
    folder = spec.model_out.parent
    chats = [] if is_sharded() else held_out_chats(store, spec)  # no process holds all weights of a sharded model on its GPU
    before = general_loss(model, tokenizer, chats, spec.settings.precision)
    with disk_errors("training", folder):
        with tempfile.TemporaryDirectory(prefix="headrace-stage-") as scratch:
            metrics, notes = _train(spec, store, model, tokenizer, items, Path(scratch))
        weights = whole_weights(model) if is_sharded() else None
        if not is_main():
            return {}
        model = merge_adapters(model if weights is None else _unsharded(model, spec, weights))
        figures = summary(metrics)
        if before is not None and (after := general_loss(model, tokenizer, chats, spec.settings.precision)) is not None:
            figures |= {"general_loss_before": before, "general_loss": after}
        write_rows(folder / METRICS, metrics)
        _put_in_place(model, tokenizer, spec.model_out)
        result = {"weights_hash": weights_hash(spec.model_out), "metrics": figures, "notes": notes, "code_hash": _code()}
        replace_atomically(folder / "result.json", lambda path: path.write_text(json.dumps(result)) and None)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return result


def _unsharded(model: Any, spec: StageSpec, weights: Mapping[str, Any]) -> Any:
    """A model on the CPU like a sharded one, with these weights."""
    plain = type(without_wrapper(model))(model.config).to(without_wrapper(model).dtype)
    plain.generation_config = model.generation_config
    if spec.settings.lora is not None:
        plain = add_adapters(plain, spec.settings.lora, spec.seed)
    plain.load_state_dict(weights)
    return plain


def _put_in_place(model: Any, tokenizer: Any, folder: Path) -> None:
    """Writes the model folder to a draft, syncs it to disk, and renames it."""
    from train.tiny import save_policy

    draft = folder.with_name(".model.new")
    shutil.rmtree(draft, ignore_errors=True)
    save_policy(model, tokenizer, draft)
    for file in draft.iterdir():
        sync_file(file)
    sync_dir(draft)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    sync_dir(folder.parent)


def _policy(spec: StageSpec, items: Sequence[ReleasedItem]) -> tuple[Any, Any]:
    """The input policy, or a fresh tiny one whose vocabulary covers its worlds and the split."""
    from train import tiny

    if spec.model_in is not None:
        is_frozen = spec.settings.lora is not None
        return _load(spec.model_in, in_bf16=is_frozen and uses_bf16(spec.settings.precision))
    if unknown := [name for name in spec.worlds if name not in WORLDS]:
        raise BadInput(f"stage {spec.name} names worlds that neither Headrace nor the store has: {', '.join(unknown)}")
    texts = [tiny.render(item.conversation.messages) for item in items if item.conversation]
    worlds = [WORLDS[name] for name in spec.worlds]
    tokenizer = tiny.build_tokenizer([*texts, *tiny.vocabulary_texts(worlds, [spec.language])])
    return tiny.build_model(spec.tiny, tokenizer, spec.seed), tokenizer


def _load(folder: Path, *, in_bf16: bool) -> tuple[Any, Any]:
    """Loads model and tokenizer; weights that are trained are held in fp32, whatever the passes compute in.

    Raises:
        BadInput: a file is missing or damaged.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    check_folder(folder)
    check_stage_weights(folder)
    try:
        model, loading_info = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.bfloat16 if in_bf16 else torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # each library has its own errors
        if _is_out_of_memory(error):
            raise
        raise BadInput(f"{folder} cannot be loaded ({_first_line(error)}): copy the whole model folder again") from error
    if lost := sorted(loading_info["missing_keys"]):
        raise BadInput(f"{folder} lacks {len(lost)} of its model's weights, {lost[0]} among them: copy the whole model folder again")
    return model, tokenizer


def _train(
    spec: StageSpec, store: Store, model: Any, tokenizer: Any, items: Sequence[ReleasedItem], scratch: Path
) -> tuple[list[dict[str, float]], list[str]]:
    """Trains `model` in place; returns one row of metrics per step, and notes for the user. RL also writes `tags.jsonl`."""
    from train.checkpoints import Checkpoints, SavedParts

    folder, notes = spec.model_out.parent, list[str]()
    if spec.sft is not None:
        from train.sft.sft import train_sft

        talks = _talks(spec, items)
        metrics = train_sft(
            model,
            tokenizer,
            [messages for messages, _ in talks],
            spec.sft,
            seed=spec.seed,
            scratch=scratch,
            tools=[tools for _, tools in talks],
            live=folder / METRICS,
            checkpoints=partial(Checkpoints, folder / CHECKPOINTS, _settings_hash(spec)) if spec.sft.checkpoint_steps else None,
            note=notes.append,
        )
        return metrics, notes
    from train.rl.policy_server import serve_policy
    from train.rl.rollback import Rollback

    assert spec.rl is not None
    source = routed_tasks(store, items, spec, spec.rl)
    rollback = Rollback(spec.rl.rollback_mastered) if spec.rl.start == "rollback" else None
    running = SavedParts(tags=source.running, anchors=rollback.anchors) if rollback else source.running
    with (
        _queue(spec, source, model, tokenizer, scratch) as queue,
        serve_policy(spec.rl, model, tokenizer, scratch=scratch, folder=folder) as server,
    ):
        from train.rl.rl import train_rl  # the import takes seconds, in parallel with the start of the player

        also = queue.save if queue else lambda _: None
        metrics = train_rl(
            model,
            tokenizer,
            source,
            spec.rl,
            seed=spec.seed,
            scratch=scratch,
            policy_version=folder.name,
            watch=source.watch,
            checkpoints=Checkpoints(folder / CHECKPOINTS, _settings_hash(spec), running, also) if spec.rl.checkpoint_steps else None,
            live=folder / METRICS,
            queue=queue,
            server=server,
            rollback=rollback,
        )
    write_rows(folder / TAGS, source.running.tags(since=0).drop("policy_id").to_dicts())
    return metrics, notes


def _queue(spec: StageSpec, source: FreshTasks, model: Any, tokenizer: Any, scratch: Path) -> BatchQueue | nullcontext[None]:
    """The queue of an asynchronous RL stage; a context of None for one that plays and learns in turn."""
    assert spec.rl is not None
    if not spec.rl.staleness:
        return nullcontext()
    if spec.rl.rollout_workers is None:
        from train.rl.queue import RolloutQueue

        return RolloutQueue(spec, source, model, tokenizer, scratch)
    from train.rl.trajectories.trajectory_queue import TrajectoryQueue

    return TrajectoryQueue(spec, source, model, tokenizer, scratch, _settings_hash(spec))


def _talks(spec: StageSpec, items: Sequence[ReleasedItem]) -> list[tuple[Sequence[Message], list[Tool]]]:
    """The conversations of a split, each with the tools that its prompt listed.

    Raises:
        HeadraceError: the split has none.
    """
    talks: list[tuple[Sequence[Message], list[Tool]]] = [
        (item.conversation.messages, _prompt_tools(item.setting)) for item in items if item.conversation
    ]
    if not talks:
        problem = "has no conversation to train on; SFT needs trajectories or rollouts"
        raise HeadraceError(f"split {spec.split} of release {spec.release_id} {problem}")
    return talks


def _prompt_tools(setting: Setting) -> list[Tool]:
    """The tools that the conversation's prompt listed."""
    by_name = CONTEXT_TOOLS | ({tool.name: tool for tool in WORLDS[setting.world].tools} if setting.world in WORLDS else {})
    return [by_name[name] for name in setting.tools if name in by_name]


def _settings_hash(spec: StageSpec) -> str:
    """Hash of everything that decides the result, and of the code: only equal hashes may share checkpoints and journals.

    Of `rollout_workers` it matters whether there are some, not how many.
    """
    elsewhere = {"checkpoint_steps", "vllm_memory_share", "reward_url", "rollout_workers"}
    settings = spec.model_dump(mode="json", exclude={"model_out": True, "sft": {"checkpoint_steps"}, "rl": elsewhere})
    has_workers = spec.rl is not None and spec.rl.rollout_workers is not None
    return content_id("made", settings, has_workers, processes(), is_sharded(), _code())


def _code() -> str:
    return code_hash("filters", "synth", "train")


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0 done, 1 failed, 2 bad input."""
    if "LOCAL_RANK" in os.environ:  # one of several processes, which would survive a killed launcher
        dying_with_parent(os.getppid())()
    if len(arguments) != 1:
        print("usage: python -P -m train.run SPEC.json", file=sys.stderr)
        return 2
    try:
        spec = StageSpec.model_validate_json(Path(arguments[0]).read_text())
    except (OSError, ValueError) as error:
        print(f"{arguments[0]} is no stage spec: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    try:
        run(spec)
    except HeadraceError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, BadInput) else 1
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        print(f"out of memory: smaller batches hold less (micro_batch_size, batch_size); {_first_line(error)}", file=sys.stderr)
        return 1
    return 0


def _is_out_of_memory(error: BaseException) -> bool:
    """Torch raises a RuntimeError, not a MemoryError, on CPU and GPU."""
    return isinstance(error, MemoryError) or "out of memory" in str(error) or "can't allocate memory" in str(error)


def _first_line(error: BaseException) -> str:
    """First line of the message; the error's class if there is none, as with MemoryError."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
