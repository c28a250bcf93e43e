"""The list of stages: what a configuration may leave out, what it may add, and what is refused with the key's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from flows.config import Config, read
from flows.yaml_config import load
from storage.errors import BadInput
from train.config import CascadeConfig

OWN = {"name": "sft3", "algorithm": "sft", "split": "second", "parent": "sft2"}


def config_of(*stages: dict[str, Any]) -> CascadeConfig:
    return CascadeConfig.model_validate({"stages": list(stages)})


def shown(config: CascadeConfig) -> list[tuple[str, str | None]]:
    return [(stage.name, stage.parent) for stage in config.cascade]


def test_without_a_list_there_are_the_three_default_stages() -> None:
    assert shown(CascadeConfig()) == [("sft1", None), ("sft2", "sft1"), ("rl", "sft2")]
    assert [(stage.algorithm, stage.split) for stage in CascadeConfig().cascade] == [("sft", "seed"), ("sft", "second"), ("rl", "rl")]


def test_an_entry_of_a_known_name_changes_its_keys_and_nothing_else() -> None:
    """Given a list with RL's steps and rate alone, then all else is as by default."""
    changed = config_of({"name": "rl", "max_steps": 7, "learning_rate": 1e-5})
    assert {stage.name: stage for stage in changed.stages} == {
        stage.name: stage for stage in CascadeConfig().with_stage("rl", max_steps=7, learning_rate=1e-5).stages
    }
    assert config_of({"name": "sft1", "max_steps": 7}).stage("sft1").settings.plateau_window == 25


def test_another_name_adds_a_stage_which_runs_after_its_parent() -> None:
    assert shown(config_of(OWN)) == [("sft1", None), ("sft2", "sft1"), ("rl", "sft2"), ("sft3", "sft2")]
    between = config_of(OWN, {"name": "rl", "parent": "sft3"})
    assert shown(between) == [("sft1", None), ("sft2", "sft1"), ("sft3", "sft2"), ("rl", "sft3")]


def test_a_stage_that_is_skipped_is_left_out() -> None:
    two = config_of({"name": "sft2", "skip": True}, {"name": "rl", "parent": "sft1"})
    assert shown(two) == [("sft1", None), ("rl", "sft1")]
    with pytest.raises(BadInput, match=r"train\.stages has no stage sft2; it has sft1, rl"):
        two.stage("sft2")


def test_an_entry_with_another_algorithm_begins_with_that_algorithms_defaults() -> None:
    stage = config_of({"name": "rl", "algorithm": "sft", "split": "seed", "parent": "sft2", "max_steps": 3}).stage("rl")
    assert (stage.algorithm, stage.settings.learning_rate) == ("sft", 4e-3)


@pytest.mark.parametrize(
    "stages", [(), ({"name": "rl", "max_steps": 7},), (OWN, {"name": "rl", "parent": "sft3"}), ({"name": "rl", "skip": True},)]
)
def test_a_configuration_written_out_and_read_again_is_the_same(stages: tuple[dict[str, Any], ...], tmp_path: Path) -> None:
    config = Config.model_validate({"train": {"stages": list(stages)}})
    (tmp_path / "told.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert read(tmp_path / "told.yaml") == config


def test_a_deployment_may_leave_out_what_a_file_may() -> None:
    """Its parameters are checked by the schema before a flow sees them."""
    schema = Config.model_json_schema()
    jsonschema.validate({"train": {"stages": [{"name": "rl", "max_steps": 7}]}}, schema)
    with pytest.raises(jsonschema.ValidationError, match="'name' is a required property"):
        jsonschema.validate({"train": {"stages": [{"max_steps": 7}]}}, schema)


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ("- {name: sft1, parent: rl}", "4: `train.stages.0.parent`: the stages go in a circle: sft1 <- rl <- sft2 <- sft1"),
        ("- {name: rl}\n    - {name: sft1, parent: sft2}", "5: `train.stages.1.parent`: the stages go in a circle: sft1 <- sft2 <- sft1"),
        ("- {name: rl, parent: sft9}", "4: `train.stages.0.parent`: sft9 is no stage; there are sft1, sft2"),
        ("- {name: sft2, skip: true}\n    - {name: rl, parent: sft2}", "5: `train.stages.1.parent`: sft2 is skipped; there are sft1"),
        ("- {name: rl}\n    - {name: rl}", "5: `train.stages.1.name`: there are two stages of this name (rl)"),
        ("- {name: rl, split: second}", "4: `train.stages.0.split`: must be 'rl', not 'second'"),
        ("- {name: sft1, split: third}", "4: `train.stages.0.split`: must be 'seed' or 'second', not 'third'"),
        ("- {name: rl, parent: null}", "4: `train.stages.0.parent`: the split rl is what a probe finds: name a stage"),
        ("- {name: more}", "4: `train.stages.0.name`: more is none of the default stages (sft1, sft2, rl): say its algorithm, split and"),
        ("- {name: more, algorithm: sft, split: seed}", "4: `train.stages.0.parent`: Field required"),
        ("- {name: latest, algorithm: sft, split: seed, parent: null}", "4: `train.stages.0.name`: latest stands for the policy promoted"),
        ("- {name: rl, max_stepz: 3}", "4: unknown key `train.stages.0.max_stepz`; did you mean `max_steps`?"),
        (
            "- {name: rl, backend: lsf}",
            "4: `train.stages.0.backend`: there is no backend of this name; there are local, ray, verl, roll, slurm, kuberay",
        ),
        ("- {max_steps: 3}", "4: `train.stages.0`: a stage is a mapping with a `name`"),
        ("- {name: sft1, skip: true}\n    - {name: sft2, skip: true}\n    - {name: rl, skip: true}", "every stage is skipped"),
    ],
)
def test_what_makes_no_cascade_is_refused_in_one_line_with_its_key(stages: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "told.yaml"
    file.write_text(f"train:\n  worlds: [retail]\n  stages:\n    {stages}\n")
    with pytest.raises(BadInput) as refused:
        load(file, Config)
    message = str(refused.value)
    assert words in message and message.startswith(f"{file}:") and "\n" not in message, message


@pytest.mark.parametrize(
    ("keys", "probed", "learned"), [({}, 64, 64), ({"model": "m"}, 512, 512), ({"model": "m", "answer_tokens": 99}, 99, 99)]
)
def test_answers_may_be_longer_with_a_base_model_unless_the_user_says_otherwise(keys: dict[str, object], probed: int, learned: int) -> None:
    config = CascadeConfig(**keys)
    assert (config.policy_tokens, config.stage("rl").settings.max_tokens) == (probed, learned)
    assert config.with_stage("rl", max_tokens=77).stage("rl").settings.max_tokens == 77
    assert CascadeConfig.model_validate(config.model_dump()) == config
