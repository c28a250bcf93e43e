"""Do the files of an export render with the chat templates that TRL ships, as a user of `datasets` would load and render them?

Conversations with parallel calls, repairs and refusals are synthesised, exported in both forms that the dataset card names, and rendered
with each template that has tools. A rendering is right if it has every call's name and every argument, no arguments that were encoded
twice, no null that the conversation does not have, and the last answer. Templates without tools are not counted: they leave calls
out, or refuse the conversation.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

from benchmarks.harness import Deadline, Figures
from filters.release_synthetic import collect
from flows.config import Config
from storage.releases.export import export
from storage.releases.export_rows import MessageForm
from storage.store import Store
from synth.run.synthesize import synthesize

KEYS = ("templates_rendered", "templates_wrong")
MINUTES = 3
KINDS = {"P": 10, "R": 10, "N": 10}
"""Mode token -> how many conversations with it: parallel calls, repairs, refusals."""
WITHOUT_TOOLS = (
    *("cohere", "deepseek_r1_distill", "gemma", "gemma3", "idefics3", "lfm2", "llama3", "llava_next", "phi3", "qwen2_5_vl", "smolvlm"),
    *("cohere2", "phi3_5"),
)
ONE_CALL, TEXT = ("llama3_1", "llama3_2", "gptoss"), ("deepseekv3",)
"""Templates that need an option of `headrace export`, as the dataset card says: `--calls single`, `--arguments text`."""
Conversation = Mapping[str, Any]


def measure(_: Deadline) -> Figures:
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        store = make_conversations(Path(scratch) / "store")
        forms = {form: load(store, Path(scratch), form) for form in {form_of(name) for name in with_tools()}}
    for name in with_tools():
        faults = find_faults(name, forms[form_of(name)])
        wrong += bool(faults)
        print(f"    {name}: {faults[0] if faults else 'ok'}", flush=True)
    return {"templates_rendered": float(len(with_tools())), "templates_wrong": float(wrong)}


def with_tools() -> list[str]:
    """Names of TRL's templates that have tools, those for training among them."""
    names = sorted(path.name.removesuffix(".jinja") for path in (files("trl") / "chat_templates").iterdir() if path.name.endswith(".jinja"))
    return [name for name in names if name == "deepseekv3_training" or name.removesuffix("_training") not in WITHOUT_TOOLS]


def form_of(name: str) -> MessageForm:
    family = name.removesuffix("_training")
    return MessageForm("text" if name in TEXT else "object", "single" if family in ONE_CALL else "parallel")


def make_conversations(folder: Path, accepted: int = 250) -> Store:
    store, config = Store(folder), Config.model_validate({"synthesize": {"worlds": ["retail", "library"], "accepted": accepted}})
    synthesize(store, config.synthesize, divisions=config.curate.divisions)
    return store


def load(store: Store, scratch: Path, form: MessageForm) -> list[Conversation]:
    """Some exported conversations of each of `KINDS`, as `datasets` reads them."""
    from datasets import load_dataset

    folder = export(store, collect(store), scratch / f"{form.arguments}-{form.calls}", form=form)
    rows = load_dataset(str(folder), "conversations", split="sft", cache_dir=str(scratch / "cache")).to_list()
    modes = dict(store.query("SELECT trajectory_id, mode_fine FROM trajectories").iter_rows())
    chosen: dict[str, Conversation] = {}
    for token, count in KINDS.items():
        having = [row for row in rows if token in modes[row["id"]]][:count]
        if len(having) < count:
            raise AssertionError(f"only {len(having)} conversations have the mode {token}")
        chosen |= {row["id"]: row for row in having}
    return list(chosen.values())


def find_faults(name: str, conversations: Sequence[Conversation]) -> list[str]:
    """What is wrong with a template's renderings; empty if nothing is."""
    template = (files("trl") / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")
    return [f"{row['id']}: {fault}" for row in conversations for fault in _faults(template, row)]


def _faults(template: str, row: Conversation) -> Iterator[str]:
    try:
        (text,), _ = render_jinja_template([row["messages"]], tools=row["tools"], chat_template=template, bos_token="<s>", eos_token="</s>")
    except Exception as error:  # a template raises what it likes
        yield str(error)
        return
    asked = next(message["content"] for message in row["messages"] if message["role"] == "user").strip()
    talk = text.partition(asked)[2]
    calls = [call["function"] for message in row["messages"] for call in message.get("tool_calls") or ()]
    for call in calls:
        if call["name"] not in talk:
            yield f"the call of {call['name']} is not there"
        arguments = call["arguments"] if isinstance(call["arguments"], dict) else json.loads(call["arguments"])
        missing = [value for value in _scalars(arguments) if value not in talk and json.dumps(value, ensure_ascii=False)[1:-1] not in talk]
        if missing:
            yield f"the argument {missing[0]} of {call['name']} is not there"
        for separators in ((", ", ": "), (",", ":")):
            twice = json.dumps(json.dumps(arguments, ensure_ascii=False, separators=separators), ensure_ascii=False)[1:-1]
            if arguments and twice in talk:
                yield f"the arguments of {call['name']} are encoded twice"
    said = json.dumps(row["messages"], ensure_ascii=False)
    if any(word in talk and word not in said for word in ("null", "None")):
        yield "a null that the conversation does not have"
    if row["messages"][-1]["content"].strip() not in text:
        yield "the last answer is not there"


def _scalars(value: Any) -> Iterator[str]:
    """The texts and numbers in arguments. Templates write a text as it is, or as JSON."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _scalars(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)
