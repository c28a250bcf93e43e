"""A model folder that lacks a file is refused with a message that names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage.errors import BadInput
from synth.engines.engine_names import check_engine
from synth.engines.local.hf import HFEngine
from synth.engines.local.model_folder import check_folder
from tests.train.tiny_policies import small_policy
from train.tiny import save_policy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A policy as a training stage leaves it."""
    model, tokenizer = small_policy([])
    save_policy(model, tokenizer, tmp_path / "policy")
    return tmp_path / "policy"


def without_template(folder: Path) -> None:
    for file in folder.glob("chat_template*"):
        file.unlink()
    told = folder / "tokenizer_config.json"
    told.write_text(json.dumps({name: value for name, value in json.loads(told.read_text()).items() if name != "chat_template"}))


def without_weights(folder: Path) -> None:
    """A trainer leaves its arguments beside the weights."""
    (folder / "model.safetensors").rename(folder / "training_args.bin")


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (without_weights, "holds no weights"),
        (without_tokenizer, "holds no tokenizer"),
        (without_template, "has no chat template"),
    ],
    ids=["model", "weights", "tokenizer", "template"],
)
def test_a_folder_that_lacks_something_is_refused(folder: Path, spoil, says: str) -> None:
    check_folder(folder)
    spoil(folder)
    for look in (
        lambda: check_folder(folder),
        lambda: check_engine(f"hf:{folder}"),
        lambda: check_engine(f"vllm:{folder}"),
        lambda: HFEngine(folder),
    ):
        with pytest.raises(BadInput, match=says):
            look()


def test_a_template_may_stand_in_the_tokenizer_s_configuration(folder: Path) -> None:
    template = (folder / "chat_template.jinja").read_text()
    without_template(folder)
    told = folder / "tokenizer_config.json"
    told.write_text(json.dumps(json.loads(told.read_text()) | {"chat_template": template}))
    check_folder(folder)
    assert HFEngine(folder).tokenizer.chat_template == template
