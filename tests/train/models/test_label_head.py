"""TRL's head projects positions with a label alone, and scores them as a head that projects all."""

from __future__ import annotations

import pytest
import torch
from trl.trainer import utils

from tests.train.tiny_policies import expert_conversations, retail_tasks, small_policy
from train.models.label_head import project_labels_alone


@pytest.fixture
def projected_positions(monkeypatch) -> list[int]:
    """The number of positions in every projection."""
    counts: list[int] = []
    apply = utils._ChunkedLogProbFunction.apply
    monkeypatch.setattr(utils._ChunkedLogProbFunction, "apply", lambda hidden, *rest: counts.append(len(hidden)) or apply(hidden, *rest))
    return counts


def test_a_position_without_a_label_is_not_projected_and_a_label_keeps_its_score(projected_positions):
    model, _ = small_policy(expert_conversations(retail_tasks()))
    ids = torch.arange(1, 13).reshape(2, 6)
    labels = ids.masked_fill(torch.tensor([[1, 1, 1, 0, 0, 1], [1, 1, 1, 1, 0, 1]], dtype=torch.bool), -100)
    expected = model(ids).logits.log_softmax(-1)[:, :-1].gather(2, ids[:, 1:, None])[:, :, 0]

    project_labels_alone()
    project_labels_alone()
    utils.add_fused_lm_head(model)
    scores = model(ids, labels=labels, fused_lm_head=True).log_probs

    assert projected_positions == [3]
    is_labelled = labels[:, 1:] != -100
    torch.testing.assert_close(scores[is_labelled], expected[is_labelled])
    assert not scores[~is_labelled].any()
