"""What is refused before anything is rendered, whatever the engine; and what a submission is called."""

from __future__ import annotations

import json

import pytest

from storage.errors import BadInput
from tests.train.backends.stages import RL, SFT, stage
from train.backends.render import render
from train.backends.shape import ClusterShape

ENGINES = ("verl", "roll")
CLASS = "team.loops.HeadraceLoop"


@pytest.fixture(params=ENGINES)
def refused(request):
    """Renders with either engine and returns what it was refused with."""

    def ask(spec, shape=ClusterShape(), adapter=CLASS):  # noqa: B008 (frozen)
        with pytest.raises(BadInput) as told:
            render(request.param, spec, shape, adapter=adapter)
        return str(told.value)

    return ask


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("tokenizer.json", "holds no tokenizer"),
        ("chat_template.jinja", "has no chat template"),
        ("config.json", "is no Hugging Face model folder"),
        ("model-00001-of-00004.safetensors", "holds no weights"),
    ],
)
def test_a_policys_folder_that_lacks_something(released, policy, refused, missing, says):
    (policy / missing).unlink()
    assert says in refused(stage(released, policy))


def test_no_policy_to_begin_with(released, refused):
    assert "only the backend local makes a fresh tiny policy" in refused(stage(released, None))


def test_a_release_or_a_split_that_is_not_there_or_holds_less_than_a_batch(released, policy, refused):
    assert "has no release release-0" in refused(stage(released, policy, release_id="release-0"))
    assert "has no split 'sft2'" in refused(stage(released, policy, split="sft2"))
    assert "split few of release" in (said := refused(stage(released, policy, split="few")))
    assert "has 4 tasks, and a step of stage rl takes 32" in said
    assert "has 0 tasks" in refused(stage(released, policy, split="seed"))


def test_tasks_where_conversations_are_due(released, policy):
    with pytest.raises(BadInput, match="has 0 conversations, and a step of stage sft1 takes 16"):
        render("verl", stage(released, policy, sft=SFT, split="rl"), ClusterShape(), adapter=CLASS)


def test_lengths_and_layouts_that_the_model_cannot_have(released, policy, refused):
    spec = stage(released, policy)
    assert "may have 53248 tokens" in refused(spec, ClusterShape(response_tokens=49152))
    assert "tensor_parallel 3 does not divide the 32 attention heads" in refused(spec, ClusterShape(tensor_parallel=3, gpus_per_node=6))
    assert "tensor_parallel 16 does not divide gpus_per_node 8" in refused(spec, ClusterShape(tensor_parallel=16))
    short = stage(released, policy, rl=RL.model_copy(update={"max_tokens": 20_000}))
    assert "one answer may have 20000 tokens" in refused(short)


@pytest.mark.parametrize("adapter", ["", "Loop", "team..Loop", "team.Loop; rm", "team.Loop\n"])
def test_an_adapter_that_is_no_dotted_path(released, policy, refused, adapter):
    assert "is no dotted path of a class" in refused(stage(released, policy), adapter=adapter)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tiny_policys_learning_rate_for_a_large_one_is_noted(released, policy, engine):
    hot = stage(released, policy, rl=RL.model_copy(update={"learning_rate": 6e-4}))
    assert any("probably far too high" in note for note in render(engine, hot, ClusterShape(), adapter=CLASS).notes)
    assert not any("too high" in note for note in render(engine, stage(released, policy), ClusterShape(), adapter=CLASS).notes)
    (policy / "config.json").write_text(json.dumps({"hidden_size": 96, "num_attention_heads": 4}))
    assert not any("too high" in note for note in render(engine, hot, ClusterShape(), adapter=CLASS).notes)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_stage_has_the_same_submission_and_another_one_another(released, policy, engine):
    def submission(**changes):
        return render(engine, stage(released, policy, **changes), ClusterShape(), adapter=CLASS).files["submit.sh"]

    assert submission() == submission()
    assert submission(seed=1) != submission()
