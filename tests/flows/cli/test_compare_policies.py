"""`headrace compare`: what it prints, and what it refuses in one line."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from flows.cli.main import app
from tests.train.measure.test_compare import BETTER, trained
from tests.train.tiny_policies import retail_tasks


def run_command(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    if code:
        assert result.stderr.count("\n") == 1
    return result.output


def test_the_comparison_of_one_store_is_marked_as_one_seed(tmp_path: Path) -> None:
    tasks = [*retail_tasks("close_order", each=20), *retail_tasks("order_status", each=20)]
    purposes = ("eval_in", "eval_in_greedy")
    stores = [trained(tmp_path / f"s{seed}", tasks, BETTER, seed, purposes=purposes).root for seed in range(2)]
    one = run_command("compare", "sft1", "rl", "--store", str(stores[0]))
    (gain,) = [line.split() for line in one.splitlines() if line.startswith("intent") and "close_order" in line]
    assert gain[2] == "20" and "*" in gain
    assert "one training seed: the intervals cover the chance of tasks and samples" in one
    two = run_command("compare", "sft1", "rl", "--store", str(stores[0]), "--store", str(stores[1]))
    assert "one training seed" not in two and "2 training seeds: " in two and "by seed" not in one
    assert [line.split()[:4] for line in two.splitlines() if line.startswith("known needs")] == [
        ["known", "needs", "sampled", "40"],
        ["known", "needs", "greedy", "40"],
    ]
    assert "has no policy sft2" in run_command("compare", "sft2", "rl", "--store", str(stores[0]), code=2)
