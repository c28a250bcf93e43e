"""The part of a dataset card that says how to load the files and train on them, as code that runs as pasted.

What it does not do: describe the data (`dataset_card.py`).
"""

from __future__ import annotations

from collections.abc import Collection

from storage.releases.export_rows import TRAJECTORIES, Format, MessageForm

_LOADED = """```python
from datasets import load_dataset

{lines}
```"""

_SFT = """Train on it with TRL, where `.` is this folder:

```python
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

trainer = SFTTrainer(
    model="Qwen/Qwen3-0.6B",
    args=SFTConfig(output_dir="out", assistant_only_loss=True, max_length=8192),
    train_dataset=load_dataset(".", "conversations", split="{split}"),
)
trainer.train()
```"""

_TEMPLATES = """| chat template | export it with |
| --- | --- |
| Llama 3.1, Llama 3.2 and gpt-oss take one call per message | `--calls single` |
| DeepSeek-V3, its original template, takes arguments as text | `--arguments text` |
| Gemma 1 to 3, Llama 3, Phi-3, Aya and others take no tools | give the model a template with tools: `SFTConfig(chat_template_path=...)` |
| others that TRL ships | as it is |"""

_VERL = """verl reads the files with the class in `verl_dataset.py`, which parses the JSON text of `messages` and `tools`:

```bash
python3 -m verl.trainer.sft_trainer data.train_files=$PWD/{split}.conversations.parquet \\
  data.custom_cls.path=$PWD/verl_dataset.py data.custom_cls.name=ExportedConversations
```

verl renders each message alone and compares the result with the whole conversation. Templates that put several tool results into one
message differ there: export with `--calls single`. Templates that add thoughts differ too: set `data.ignore_input_ids_mismatch=True`."""

_ROLL = "ROLL reads the `.prompts.jsonl` files for RL. Its SFT takes single-turn rows without tools, so train the conversations elsewhere."


_TRAJECTORY = {
    "atif": "A line of a file is a trajectory in ATIF 1.7, Harbor's interchange format: `steps`, whose calls (`tool_calls`) and results "
    "(`observation`) are together, `agent`, `final_metrics`. Each line alone is a valid `trajectory.json`.",
    "sharegpt": "A line of a file is a conversation in ShareGPT form: `conversations` with `from` (human, gpt, function_call, observation) "
    'and `value`, `system`, and `tools` as JSON text. In LLaMA-Factory: `"formatting": "sharegpt"`, columns `messages: conversations`, '
    "`system: system`, `tools: tools`. Calls that were parallel follow one another; text beside a call is left out.",
}


def table_files(names: Collection[str], kind: str) -> list[str]:
    """The files of a kind that are loaded: Parquet, or JSONL where there is no Parquet."""
    found = [name for name in names if name.endswith(f".{kind}.parquet")]
    return found or [name for name in names if name.endswith(f".{kind}.jsonl")]


def usage(format: Format, form: MessageForm, names: Collection[str]) -> str:
    """The section as Markdown; `names`: file names of the export."""
    splits = {kind: [name.split(".")[0] for name in table_files(names, kind)] for kind in ("conversations", "prompts")}
    trained = next(iter(splits["conversations"]), None)
    lines = [
        f'{kind} = load_dataset(".", "{kind}")  # splits: {", ".join(found)}; "." is this folder' for kind, found in splits.items() if found
    ]
    in_words = _TRAJECTORY[format] if format in TRAJECTORIES else _form_in_words(format, form)
    parts = ["## How to use it", _LOADED.format(lines="\n".join(lines)), in_words]
    if format == "trl" and trained:
        parts += [_SFT.format(split=trained), _TEMPLATES]
    elif format == "verl" and trained:
        parts += [_VERL.format(split=trained)]
    elif format == "roll":
        parts += [_ROLL]
    return "\n\n".join(parts)


def _form_in_words(format: Format, form: MessageForm) -> str:
    arguments = "an object" if form.arguments == "object" else "a JSON text"
    calls = (
        "A message may hold several calls." if form.calls == "parallel" else "A message holds one call; calls that were parallel follow."
    )
    stored = (
        "Messages and tools have the type `Json` of `datasets` 4.7 or later (`arrow.json` in Parquet), so that no call gets the arguments "
        "of another as nulls."
        if format == "trl"
        else "Columns `tools` and, of conversations, `messages` are JSON text."
    )
    return f"The `arguments` of a tool call are {arguments}. {calls} {stored}"
