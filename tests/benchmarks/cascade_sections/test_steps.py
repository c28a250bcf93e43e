"""What a step costs beside TRL's: both do the same work, here in miniature, and where they do not, there is no figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cascade_sections import steps
from benchmarks.cascade_sections.steps import Learning, plain_sft, rl_ratios, sections, sft_ratios, trl_rl
from tests.train.tiny_policies import expert_conversations, retail_tasks, small_policy
from train.spec import RLSettings, SFTSettings

TASKS = retail_tasks("special_service", "impossible_wish", "buy_unnamed", "order_status", each=2)
SFT = SFTSettings(max_steps=3, batch_size=4, learning_rate=1e-2, warmup_steps=0)
RL = RLSettings(max_steps=2, tasks_a_step=4, draws=4, warmup_steps=0, max_tokens=24)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained just enough that some of its samples succeed and others fail."""
    from train.sft.sft import train_sft

    folder = tmp_path_factory.mktemp("policy")
    conversations = expert_conversations(TASKS)
    model, tokenizer = small_policy(conversations)
    half = SFTSettings(max_steps=26, batch_size=8, learning_rate=1e-2, warmup_steps=2)
    train_sft(model, tokenizer, conversations, half, seed=0, scratch=folder / "scratch")
    for part in (model, tokenizer):
        part.save_pretrained(folder / "model")
    return folder / "model"


@pytest.fixture
def few_rollouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates of so few differ by more."""
    monkeypatch.setattr(steps, "SUCCESS_APART", 0.3)


def test_both_figures_have_a_section() -> None:
    assert [section.keys[0] for section in sections()] == ["sft_step_vs_trl", "rl_step_vs_trl"]


@pytest.mark.slow
def test_a_step_of_sft_is_measured_beside_one_that_gives_the_same_weights(capsys: pytest.CaptureFixture[str]) -> None:
    found = sft_ratios(TASKS, SFT, blocks=4)
    assert tuple(found) == sections()[0].keys and all(0.2 < ratio < 5 for ratio in found.values())
    assert "CPU seconds a step" in capsys.readouterr().out


@pytest.mark.slow
def test_a_step_of_sft_that_gives_other_weights_gives_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a peer that learns a little faster."""

    def faster(*arguments, **named):  # type: ignore[no-untyped-def]
        *before, settings = arguments
        plain_sft(*before, settings.model_copy(update={"learning_rate": 1.2e-2}), **named)

    monkeypatch.setattr(steps, "plain_sft", faster)
    with pytest.raises(ValueError, match="of their way apart"):
        sft_ratios(TASKS, SFT, blocks=1)


@pytest.mark.slow
@pytest.mark.usefixtures("few_rollouts")
def test_a_step_of_rl_is_measured_beside_one_that_succeeds_as_often(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rl_ratios(policy, TASKS * 2, RL, blocks=2)
    assert list(found) == ["rl_step_vs_trl", "rl_step_vs_trl_seed1"], "a block that warms up, and one of the second seed"
    assert 0.02 < found["rl_step_vs_trl"] < 2
    assert "64 rollouts of each" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("few_rollouts")
@pytest.mark.parametrize(
    ("changed", "complaint"),
    [({"max_tokens": 2}, "succeed differently often"), ({"draws": 2}, "roll out 32 times"), ({"learning_rate": 1e-6}, "learns more")],
)
def test_a_step_of_rl_that_does_something_else_gives_no_figure(
    policy: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, float], complaint: str
) -> None:
    def other(model, tokenizer, learning: Learning, scratch: Path) -> list[float]:  # type: ignore[no-untyped-def]
        return trl_rl(model, tokenizer, replace(learning, settings=learning.settings.model_copy(update=changed)), scratch)

    monkeypatch.setattr(steps, "trl_rl", other)
    with pytest.raises(ValueError, match=complaint):
        rl_ratios(policy, TASKS, RL, blocks=1)
