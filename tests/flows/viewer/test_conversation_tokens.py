"""The tokens that the viewer shows of a conversation: what is learned of it, and that no text is lost or changed between tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.viewer.conversation_tokens import conversation_tokens
from storage.errors import BadInput
from storage.records import Message
from storage.store import Store
from tests.storage.conftest import write
from tests.synth.tiny_caller import tokenizer

SAYS = [
    {"role": "user", "content": "is the lamp there"},
    {"role": "assistant", "content": "it is there, 订单 60"},
    {"role": "user", "content": "and the other"},
    {"role": "assistant", "content": "no"},
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One SFT stage, its policy with a tokenizer, and a second policy without one."""
    made = Store(tmp_path / "store")
    tokenizer().save_pretrained(made.root / "models" / "one")
    stage = {"algorithm": "sft", "split": "seed", "spec": json.dumps({"sft": {"leave_out": "erred"}})}
    made.commit(
        [
            write(made, "stages", stage | {"stage_id": "stage-1", "name": "sft1", "output_policy_id": "policy-1"}),
            write(
                made,
                "policies",
                {"policy_id": "policy-1", "stage_id": "stage-1", "path": "models/one", "weights_hash": "1"},
                {"policy_id": "policy-2", "stage_id": "stage-2", "path": "models/two", "weights_hash": "2"},
            ),
        ]
    )
    return made


def test_what_the_assistant_writes_is_learned_and_nothing_else(store: Store) -> None:
    row = {"id": "trajectory-1", "task_id": None, "messages": json.dumps(SAYS)}

    shown = conversation_tokens(store, "trajectory", row)

    learned = "".join(token.text for token in shown.tokens if token.is_learned)
    whole = "".join(token.text for token in shown.tokens)
    assert learned.index(SAYS[1]["content"]) < learned.index(SAYS[3]["content"])
    assert not any(SAYS[at]["content"] in learned for at in (0, 2))
    assert all(Message.model_validate(says).content in whole for says in SAYS)
    assert shown.policy == "policy-1 (sft1)"


def test_a_sampled_token_has_its_probability_and_a_turn_written_otherwise_is_not_learned(store: Store) -> None:
    ids = tokenizer()("the lamp is there")["input_ids"]
    turns = [
        {"token_ids": ids, "logprobs": [-0.1] * (len(ids) - 1) + [-6.9], "context_ids": ids[:2]},
        {"token_ids": ids[:1], "logprobs": [0.0], "is_exact": False},
    ]
    rollout = {"rollout_id": "rollout-1", "task_id": "t", "policy_id": "policy-1", "draw": 0, "messages": "[]", "turns": json.dumps(turns)}
    store.commit([write(store, "rollouts", rollout)])

    shown = conversation_tokens(store, "rollout", {"id": "rollout-1", "policy_id": "policy-1"})

    assert [token.is_learned for token in shown.tokens] == [False, False, *[True] * len(ids), False]
    assert "".join(token.text for token in shown.tokens if token.is_learned) == "the lamp is there"
    assert shown.tokens[len(ids) + 1].surprise == 9
    assert shown.tokens[2].probability == pytest.approx(0.905, abs=0.001)


def test_a_policy_whose_tokenizer_is_gone_is_refused(store: Store) -> None:
    rollout = {"rollout_id": "rollout-2", "policy_id": "policy-2", "turns": json.dumps([{"token_ids": [1], "logprobs": [0.0]}])}
    store.commit([write(store, "rollouts", rollout)])

    with pytest.raises(BadInput, match="tokenizer of policy-2 is not in the store"):
        conversation_tokens(store, "rollout", {"id": "rollout-2", "policy_id": "policy-2"})
