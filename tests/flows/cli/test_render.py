"""`headrace render`: writes a folder with all files for a cluster, or refuses in one line and writes nothing."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import yaml
from typer.testing import CliRunner

from flows.cli.main import app
from tests.train.backends.stages import policy, released
from train.backends.render_stage import ADAPTERS

__all__ = ["policy", "released"]

CONFIG = "train: {stages: [{name: rl, max_steps: 50, tasks_a_step: 32, draws: 8, learning_rate: 1.0e-6, max_tokens: 512, loss: gspo}]}\n"


@pytest.fixture
def render(released, policy, tmp_path):
    """Calls `headrace render ENGINE` with its required options; returns exit code, output and folder."""
    config = tmp_path / "8b.yaml"
    config.write_text(CONFIG)

    def call(engine: str, *more: str) -> tuple[int, str, Path]:
        folder = tmp_path / "out"
        adapter = "team.proxy_env_manager.Loop"
        needed = ["--model", str(policy), "--adapter", adapter, "--config", str(config), "--store", str(released[0].root)]
        result = CliRunner().invoke(app, ["render", engine, *needed, "--out", str(folder), *more])
        return result.exit_code, " ".join(result.output.split()), folder

    return call


@pytest.mark.parametrize(("engine", "rows"), [("verl", "rl.prompts.parquet"), ("roll", "rl.prompts.jsonl")])
def test_the_folder_holds_the_configuration_its_rows_and_the_command(render, engine, rows):
    code, output, folder = render(engine)
    assert code == 0, output
    assert f"bash {folder / 'submit.sh'}" in output
    assert "note: tasks are the split's own" in output
    rows_file = folder / "data" / rows
    text = (folder / ("pipeline.yaml" if engine == "roll" else "entrypoint.sh")).read_text()
    assert str(rows_file) in text
    assert (pl.read_parquet(rows_file) if rows.endswith("parquet") else pl.read_ndjson(rows_file)).height == 32
    assert str(folder / "entrypoint.sh") in (folder / "submit.sh").read_text()


def test_no_adapter_has_to_be_named(released, policy, tmp_path):
    config = tmp_path / "8b.yaml"
    config.write_text(CONFIG)
    needed = ["--model", str(policy), "--config", str(config), "--store", str(released[0].root), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["render", "verl", *needed])
    assert result.exit_code == 0, result.output
    assert yaml.safe_load((tmp_path / "out" / "agent_loop.yaml").read_text())[0]["_target_"] == ADAPTERS["verl"]["rl"]


def test_settings_come_from_the_configuration_and_engine_keys_from_set(render):
    code, output, folder = render("roll", "--set", "save_steps=25", "--set", "actor_train.training_args.learning_rate=2e-7")
    assert code == 0, output
    rendered = yaml.safe_load((folder / "pipeline.yaml").read_text())
    assert (rendered["max_steps"], rendered["save_steps"], rendered["ratio_type"]) == (50, 25, "segment")
    assert rendered["actor_train"]["training_args"]["learning_rate"] == 2e-7


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--set", "actor_train.flash=1"), "actor_train.flash is no key"),
        (("--set", "save_steps"), "write KEY=VALUE"),
        (("--set", "rollout_batch_size=100"), "rollout_batch_size 100 is not a multiple"),
        (("--stage", "sft1", "--release", "rl"), "ROLL's SFT"),
        (("--release", "nothing"), "has no release nothing"),
        (("--nodes", "3"), "cannot be shared by 24 GPUs"),
        (("--adapter", "Loop"), "is no dotted path"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_nothing_is_written(render, more, says):
    code, output, folder = render("roll", *more)
    assert code == 2
    assert says in output
    assert not folder.exists()


def test_the_options_set_the_machines(render):
    code, output, folder = render("verl", "--nodes", "4", "--gpus-per-node", "4", "--tensor-parallel", "4")
    assert code == 0, output
    text = (folder / "entrypoint.sh").read_text()
    assert "trainer.nnodes=4 " in text
    assert "trainer.n_gpus_per_node=4 " in text
    assert "tensor_model_parallel_size=4 " in text


def test_a_folder_with_files_is_not_changed(render):
    _, _, folder = render("roll")
    before = sorted(folder.rglob("*"))
    code, output, _ = render("roll")
    assert code == 2
    assert "exists already; give a new folder" in output
    assert sorted(folder.rglob("*")) == before
