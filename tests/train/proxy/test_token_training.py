"""The proxies' training loop: it learns, it is deterministic, and its losses are those of the whole model."""

from __future__ import annotations

import pytest
import torch

from storage.errors import HeadraceError
from storage.records import FunctionCall, Message, ToolCall
from train import tiny
from train.proxy.token_training import TokenTraining, encode, mean_losses, train
from train.spec import TinyConfig

TRAINING = TokenTraining(tokens=12_000, batch_tokens=400)


def conversation(number: int) -> tuple[Message, ...]:
    call = ToolCall(id="call_0", function=FunctionCall(name="cancel_order", arguments=f'{{"id": "o{number}"}}'))
    return (
        Message(role="user", content=f"please cancel order o{number}"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id="call_0", content='{"done": true}'),
        Message(role="assistant", content=f"I have cancelled o{number}."),
    )


CONVERSATIONS = [conversation(number) for number in range(40)]


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.build_tokenizer([tiny.render(one) for one in CONVERSATIONS], splits_names=True)


def model(tokenizer):
    return tiny.build_model(TinyConfig(width=48, layers=2, feed_forward=96, positions=128), tokenizer, seed=0)


def test_training_lowers_the_loss_and_is_the_same_again(tokenizer) -> None:
    examples = encode(tokenizer, CONVERSATIONS)
    one, other = model(tokenizer), model(tokenizer)

    losses = train(one, examples, TRAINING, seed=3)

    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    assert train(other, examples, TRAINING, seed=3) == losses
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_mean_losses_are_those_of_the_assistants_tokens_alone(tokenizer) -> None:
    examples, policy = encode(tokenizer, CONVERSATIONS[:7]), model(tokenizer)

    found = mean_losses(policy, examples, batch_tokens=100)

    for example, loss in zip(examples, found, strict=True):
        ids = torch.tensor([example.ids])
        logits = policy(input_ids=ids).logits[0, :-1]
        each = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")
        expected = each[torch.tensor(example.is_written[1:])].mean().item()
        assert loss == pytest.approx(expected, rel=1e-4)


def test_conversations_without_an_assistant_are_refused(tokenizer) -> None:
    examples = encode(tokenizer, [(Message(role="user", content="please cancel order o1"),)])

    with pytest.raises(HeadraceError, match="the assistant wrote nothing"):
        train(model(tokenizer), examples, TRAINING, seed=0)
