"""General conversations: which are trained on, which are kept aside, and what a stage forgets of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from pydantic import ValidationError

from storage.errors import BadInput
from storage.releases.dataset_card import card
from storage.releases.release import load_split, manifest_of
from synth.conversations.expert import expert_trajectory
from synth.worlds import WORLDS
from tests.train.base_folders import write_base
from tests.train.in_process import run_here
from tests.train.tiny_policies import expert_store, retail_tasks
from train.cascade import Cascade
from train.config import CascadeConfig
from train.data.general_data import SPLIT, choose_chats, read_chats, store_chats
from train.spec import SFTSettings

TASKS = retail_tasks("order_status", each=4)
PLACES = ("river", "harbour", "market", "tower", "bridge", "garden", "library", "station")
CHATS = [
    [{"role": "user", "content": f"Where is the {place} of town {n}?"}, {"role": "assistant", "content": f"The {place} is in street {n}."}]
    for n in range(5)
    for place in PLACES
]


def write(path: Path, chats: Sequence[object]) -> str:
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    return str(path)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [message.content or "" for task in TASKS for message in expert_trajectory(WORLDS["retail"], task).messages]
    texts += [json.dumps(tool.to_openai()) for tool in WORLDS["retail"].tools] + [one["content"] for chat in CHATS for one in chat]
    return write_base(tmp_path_factory.mktemp("base") / "model", texts)


def test_which_conversations_are_kept_aside_follows_from_their_content(tmp_path: Path) -> None:
    """Given the same conversations in another order, some of them twice, in another kind of file, then the same are chosen."""
    a, b = write(tmp_path / "a.jsonl", CHATS), str(tmp_path / "b.parquet")
    pl.DataFrame({"messages": [*reversed(CHATS), *CHATS[:5]]}).write_parquet(b)
    first = choose_chats({a: 20}, 512)[a]
    assert choose_chats({b: 20}, 512)[b] == first
    assert (len(first.chosen), len(first.held_out)) == (20, len(CHATS) // 5)
    assert not set(first.chosen) & set(first.held_out)


def test_what_two_sources_share_is_in_one_set_only(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.jsonl", CHATS[:30]), write(tmp_path / "b.jsonl", CHATS[20:])
    chosen = choose_chats({a: 10, b: 6}, 512)
    chats = [chat for one in chosen.values() for chat in (*one.chosen, *one.held_out)]
    assert (len(chats), len(set(chats))) == (10 + 6 + 6 + 2, 10 + 6 + 6 + 2)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[{"role": "user", "content": "hello"}]], "row 1: it must be a chat in which a user and the assistant take turns"),
        ([[CHATS[0][1], *CHATS[0]]], "row 1: it must be a chat in which a user"),
        ([[CHATS[0][0], CHATS[0][1], CHATS[0][1]]], "row 1: it must be a chat in which a user"),
        ([[CHATS[0][0], {"role": "assistant", "content": ""}]], "row 1: .* with texts"),
        ([[CHATS[0][0], CHATS[0][1] | {"tool_calls": [{"id": "c0"}]}]], "row 1: .* without tools"),
        ([CHATS[0]] * 120 + [[CHATS[0][0], {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}]], "row 121: `messages` is"),
        ([CHATS[0], [{"role": "bot", "content": "hello"}]], "row 2: `messages` is no list of role and content"),
        ([[*CHATS[0], {"role": "tool", "content": "{}"}]], "row 1: .* without tools"),
        (["hello"], "row 1: `messages` is no list"),
    ],
)
def test_a_row_that_is_no_chat_is_refused_with_its_number(tmp_path: Path, rows: Sequence[object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read_chats(write(tmp_path / "chats.jsonl", rows))


def test_files_that_give_no_chats_are_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"text": "hello"}\n')
    (tmp_path / "cut.jsonl").write_text('{"messages": [{"ro')
    for name, words in (("other.jsonl", "has no column `messages`"), ("cut.jsonl", "cannot be read"), ("gone.jsonl", "cannot be read")):
        with pytest.raises(BadInput, match=words) as refused:
            read_chats(str(tmp_path / name))
        assert "\n" not in str(refused.value)
    with pytest.raises(BadInput, match=r"is no \*.jsonl or \*.parquet file, and no id"):
        read_chats("chats.txt")
    with pytest.raises(BadInput, match=r"has 40 different conversations .*, and 208 are needed"):
        choose_chats({write(tmp_path / "few.jsonl", CHATS): 200}, 512)


def test_the_tiny_policy_has_nothing_to_keep() -> None:
    with pytest.raises(ValidationError, match="name a base model"):
        CascadeConfig(mix={"chats.jsonl": 0.2})


def test_a_release_names_them_and_a_stage_says_what_it_forgot(base: Path, tmp_path: Path) -> None:
    """Given a fifth of the seed split from general data, then the release counts them, keeps others aside, and the stage's loss on those
    falls; without them in training it falls less."""
    store, _ = expert_store(tmp_path / "store", TASKS)
    chats = write(tmp_path / "chats.jsonl", CHATS)
    config = CascadeConfig(worlds=("retail",), model=str(base), expert_budget=4, mix={chats: 0.8})
    cascade = Cascade(store, config, run=run_here)
    tasks = cascade.scripted_experts(TASKS)
    assert len(cascade.general("chosen")) == 16
    assert store_chats(store, chats, cascade.chats[chats].chosen) == cascade.general("chosen"), "stored once"
    losses = {}
    for name, items in (("with", [*tasks, *cascade.general("chosen")]), ("without", tasks)):
        release = cascade.seed_release(items)
        cascade.stage("sft1", None, release, "seed", SFTSettings(max_steps=12, batch_size=4, learning_rate=1e-2, warmup_steps=0))
        losses[name] = json.loads(store.query("SELECT metrics FROM stages WHERE release_id = ?", [release]).item())
    mixed = cascade.seed_release([*tasks, *cascade.general("chosen")])
    about = manifest_of(store, mixed)
    assert about["splits"]["seed"]["origins"]["general"] == 16 and about["splits"][SPLIT]["origins"] == {"general": 8}
    assert "general conversations (general:chats.jsonl)" in card(
        store, mixed, about, {"seed": load_split(store, mixed, "seed")}, "trl", files={}, licences={}
    )
    before, mixed_in, left_out = (
        losses["with"]["general_loss_before"],
        losses["with"]["general_loss"],
        losses["without"]["general_loss"],
    )
    assert losses["without"]["general_loss_before"] == before
    assert mixed_in < left_out and mixed_in < before
