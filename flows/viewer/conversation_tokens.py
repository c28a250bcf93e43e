"""The tokens of a conversation: which of them a stage learns, and how likely the policy was to sample each."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import BadInput
from storage.explanations.conversation_text import parse_messages
from storage.explanations.store_rows import policy_name
from storage.records import Tool
from storage.releases.lineage_graph import IS_ENGINE
from storage.store import Store

if TYPE_CHECKING:
    from synth.engines.local.chat_format import ChatFormat

MOST_TOKENS = 20_000
_MOST_PARTS = 4
"""Most tokens of one character: UTF-8 has no more bytes."""


@dataclass(frozen=True)
class ShownToken:
    """is_learned: whether the loss has this token. logprob: natural-log probability with which it was sampled; None: it was not."""

    text: str
    is_learned: bool
    logprob: float | None = None

    @property
    def probability(self) -> float:
        """With which it was sampled, 0 to 1; 1 if it was not."""
        return 1.0 if self.logprob is None else math.exp(self.logprob)

    @property
    def surprise(self) -> int:
        """0 for a token that the policy was sure of, to 9 for one that it gave at most one in a thousand."""
        return 0 if self.logprob is None else min(9, round(-self.logprob * 9 / 6.9))


@dataclass(frozen=True)
class ShownTokens:
    """policy: whose tokens they are. rule: which of them are learned, in words. left_out: tokens that are too many to show."""

    tokens: list[ShownToken]
    policy: str
    rule: str
    left_out: int = 0


def conversation_tokens(store: Store, kind: str, row: Mapping[str, Any], policy: str = "") -> ShownTokens:
    """The tokens of a row of `trajectories` or `rollouts`. policy: of an SFT stage, whose tokenizer
    reads a trajectory; empty: of the last stage that trained on it, else of the last one.

    Raises:
        BadInput: there are no tokens to show; the message says why.
    """
    return _sampled(store, row) if kind == "rollout" else _labelled(store, row, policy)


def _sampled(store: Store, row: Mapping[str, Any]) -> ShownTokens:
    """The context and the sampled tokens of a rollout, as the engine had them."""
    turns = json.loads(store.query("SELECT turns FROM rollouts WHERE rollout_id = ?", [row["id"]]).item() or "[]")
    if not turns:
        raise BadInput("the engine that played this reported no tokens")
    tokenizer = _chat_format(_folder(store, row["policy_id"])).tokenizer
    tokens: list[tuple[int, bool, float | None]] = []
    for turn in turns:
        tokens += [(token, False, None) for token in turn.get("context_ids", ())]
        is_exact = turn.get("is_exact", True)
        tokens += [(token, is_exact, logprob) for token, logprob in zip(turn["token_ids"], turn["logprobs"], strict=True)]
    rule = "RL would learn the tokens that the policy sampled; a turn that a later prompt writes otherwise is not learned"
    return _shown(tokenizer, tokens, policy_name(store, row["policy_id"]), rule)


def _labelled(store: Store, row: Mapping[str, Any], policy: str) -> ShownTokens:
    """The tokens that SFT would train on, by the rule of the last stage that did; where none did, of the last stage of all."""
    of_stage = store.query(
        f"""SELECT s.spec, s.output_policy_id AS policy_id FROM stages s JOIN parts ON parts.part_id = s.part_id
            LEFT JOIN release_items i ON i.release_id = s.release_id AND i.split = s.split AND i.item_id = ?
            WHERE s.algorithm = 'sft' AND (? = '' OR s.output_policy_id = ?)
              AND s.output_policy_id NOT IN (SELECT policy_id FROM policies p WHERE {IS_ENGINE})
            ORDER BY i.item_id IS NULL, parts.committed_at DESC, s.stage_id LIMIT 1""",
        [row["id"], policy, policy],
    )
    if of_stage.is_empty():
        raise BadInput("no SFT stage was trained yet, so there is no tokenizer to read this with: run `headrace train`")
    spec, policy = json.loads(of_stage["spec"][0]), of_stage["policy_id"][0]
    from train.data.token_labels import IGNORED, LEFT_OUT, learned_tokens

    left_out = spec["sft"]["leave_out"]
    chat_format = _chat_format(_folder(store, policy))
    found = learned_tokens(chat_format, parse_messages(row["messages"]), LEFT_OUT[left_out], 10**9, tools=_tools(store, row))
    tokens = [(token, label != IGNORED, None) for token, label in zip(found["input_ids"], found["labels"], strict=True)]
    rule = "SFT learns what the assistant writes" + (", but for turns with an error" if left_out == "erred" else "")
    return _shown(chat_format.tokenizer, tokens, policy_name(store, policy), rule)


def _shown(tokenizer: Any, tokens: Sequence[tuple[int, bool, float | None]], policy: str, rule: str) -> ShownTokens:
    """tokens: id, whether it is learned, and its log-probability."""
    texts = _texts(tokenizer, [token for token, _, _ in tokens[:MOST_TOKENS]])
    shown = [ShownToken(text, is_learned, logprob) for text, (_, is_learned, logprob) in zip(texts, tokens, strict=False)]
    return ShownTokens(shown, policy, rule, len(tokens) - len(shown))


def _texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The text of each token: what it adds to the ones before it, because alone, many tokenizers write it without its space. A character
    of several tokens is the text of its last one."""
    texts, begin, done = list[str](), 0, 0
    for at in range(len(ids)):
        written, text = tokenizer.decode(ids[begin:done]), tokenizer.decode(ids[begin : at + 1])
        is_part = text.endswith("\N{REPLACEMENT CHARACTER}") and at + 1 < min(len(ids), done + _MOST_PARTS)
        texts.append("" if is_part else text[len(written) :])
        if not is_part:
            begin, done = done, at + 1
    return texts


def _tools(store: Store, row: Mapping[str, Any]) -> list[Tool]:
    """The tools that its prompt listed: those of its task or blueprint which its world still has."""
    from synth.context.offered_tools import CONTEXT_TOOLS
    from synth.worlds import WORLDS
    from synth.worlds.stored_worlds import register_stored

    register_stored(store)
    specs = store.query(
        "SELECT spec FROM tasks WHERE task_id = ? UNION ALL SELECT spec FROM blueprints WHERE blueprint_id = ?",
        [row["task_id"], row.get("blueprint_id")],
    )["spec"]
    spec = json.loads(specs[0] or "{}") if len(specs) else {}
    if spec.get("world") not in WORLDS:
        return []
    by_name = CONTEXT_TOOLS | {tool.name: tool for tool in WORLDS[spec["world"]].tools}
    return [by_name[name] for name in spec.get("tools", ()) if name in by_name]


def _folder(store: Store, policy: str) -> Path:
    paths = store.query("SELECT path FROM policies WHERE policy_id = ?", [policy])["path"]
    folder = store.root / (paths[0] if len(paths) and paths[0] else "")
    if not (folder / "tokenizer_config.json").exists():
        raise BadInput(f"the tokenizer of {policy_name(store, policy)} is not in the store, so its tokens cannot be read")
    return folder


@lru_cache(maxsize=4)
def _chat_format(folder: Path) -> ChatFormat:
    if find_spec("transformers") is None:
        raise BadInput("tokens are read by the package transformers, which is not installed: pip install 'headrace[train]'")
    from transformers import AutoTokenizer

    from synth.engines.local.chat_format import ChatFormat

    return ChatFormat(AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False))
