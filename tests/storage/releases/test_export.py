"""Exports: rows that trainers read as they are, a card, checksums, and a folder that is whole or absent."""

import json
import os
import shutil
import subprocess

import pytest

from storage.errors import BadInput, HeadraceError
from storage.records import Task
from storage.releases.export import export
from storage.releases.export_folder import CHECKSUMS
from storage.releases.release import ReleaseItem, make_release
from storage.store import Store
from tests.storage.conftest import EXPERTS, TASKS, build_sample, funnel_parts, write

FORMATS = ("trl", "verl", "roll")


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def load(path, cache):
    """Rows as users of `datasets` read them."""
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_parquet(str(path), cache_dir=str(cache)).to_list()


@pytest.mark.parametrize("format", FORMATS)
def test_jsonl_and_parquet_say_the_same(sample, tmp_path, format):
    out = export(sample.store, sample.second_release, tmp_path / "out", format)
    for name in ("sft2.conversations", "rl.prompts"):
        lines, rows = read(out / f"{name}.jsonl"), load(out / f"{name}.parquet", tmp_path / "cache")
        assert len(rows) == len(lines) > 0
        assert {key for line in lines for key in line} == set(rows[0])
        for line, row in zip(lines, rows, strict=True):
            for key, value in line.items():
                assert _without_nulls(row[key]) == _without_nulls(value), key


def _without_nulls(value):
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def test_trl_rows_are_openai_messages_with_arguments_and_tools_as_objects_without_invented_nulls(sample, tmp_path):
    out = export(sample.store, sample.first_release, tmp_path / "out")
    for row, expert in zip(load(out / "seed.conversations.parquet", tmp_path / "cache"), EXPERTS, strict=True):
        assert [message["role"] for message in row["messages"]] == ["user", "assistant", "tool", "assistant"]
        arguments = row["messages"][1]["tool_calls"][0]["function"]["arguments"]
        assert arguments == json.loads(expert.messages[1].tool_calls[0].function.arguments) == {"category": "lamp", "max": 30}
        assert "tool_calls" not in row["messages"][0] and None not in row["messages"][1]["tool_calls"][0].values()
        assert [tool["function"]["name"] for tool in row["tools"]] == ["search_products", "buy"]
        assert row["task_id"] == expert.task_id


def test_prompt_rows_carry_the_whole_task_for_our_environments(sample, tmp_path):
    rows = {
        format: read(export(sample.store, sample.second_release, tmp_path / format, format) / "rl.prompts.jsonl")[0] for format in FORMATS
    }
    assert Task.model_validate_json(rows["trl"]["task"]) == TASKS[2]
    assert Task.model_validate_json(rows["verl"]["extra_info"]["task"]) == TASKS[2]
    assert Task.model_validate_json(rows["roll"]["ground_truth"]) == TASKS[2]
    assert rows["verl"]["agent_name"] == "headrace"
    assert rows["verl"]["reward_model"] == {"style": "rule", "ground_truth": "task-3"}
    assert rows["verl"]["prompt"] == [{"role": "user", "content": "Buy me lamp number 3"}]
    assert json.loads(rows["roll"]["messages"]) == rows["verl"]["prompt"]


def test_datasets_loads_them(sample, tmp_path):
    datasets = pytest.importorskip("datasets")
    out = export(sample.store, sample.first_release, tmp_path / "out")
    loaded = datasets.Dataset.from_parquet(str(out / "seed.conversations.parquet"), cache_dir=str(tmp_path / "cache"))
    assert loaded[0]["messages"][1]["tool_calls"][0]["function"]["name"] == "search_products"


def test_checksums_hold_and_notice_a_change(sample, tmp_path):
    out = export(sample.store, sample.second_release, tmp_path / "out")

    def check() -> int:
        return subprocess.run(["sha256sum", "-c", "--quiet", CHECKSUMS], cwd=out, capture_output=True, check=False).returncode

    assert check() == 0
    assert set((out / CHECKSUMS).read_text().split()[1::2]) == {path.name for path in out.iterdir()} - {CHECKSUMS}
    (out / "README.md").write_text("other")
    assert check() != 0


def test_the_card_tells_counts_funnel_diversity_difficulty_licences_and_hashes(sample, tmp_path):
    out = export(sample.store, sample.second_release, tmp_path / "out", licences={"log.txt": "CC-BY-4.0"})
    card = (out / "README.md").read_text(encoding="utf-8")
    for words in (
        "| sft2 | 2 | 1 rollout, 1 trajectory | 2 | from raw queries 100% |",
        "| run-1 | near | 4 | 3 | 1 |",
        "| sft2 | 0 | 0 | 0 | 2 | 0 | 0 | 0 |",
        "| rl | policy-1 | certain | 1 |",
        "| log.txt | 2 | CC-BY-4.0 |",
        sample.second_release,
        "path: sft2.conversations.parquet",
    ):
        assert words in card, words
    assert "## Diversity" not in card, "no task of it came from a blueprint"
    unlicensed = (export(sample.store, sample.first_release, tmp_path / "bare") / "README.md").read_text(encoding="utf-8")
    assert "not stated" in unlicensed
    assert "| run-synthesis | domain_entropy_bits | 1.5 | 50 |" in unlicensed
    assert "## Certainty" not in unlicensed, "no probe decided it"


def test_the_card_tells_what_a_probe_measured_and_not_what_rl_saw(build, tmp_path):
    sample = build(tmp_path / "store")
    tag = {"task_id": "task-3", "policy_id": "policy-1", "purpose": "rl", "difficulty": 2, "k": 16, "successes": 16, "region": "mastered"}
    sample.store.commit([write(sample.store, "tags", tag, n=7)])
    third = make_release(sample.store, "third", {"rl": [ReleaseItem("task", "task-3", "task-3")]}, {"probed_policy": "policy-1"})
    card = (export(sample.store, third, tmp_path / "out") / "README.md").read_text(encoding="utf-8")
    assert "| rl | policy-1 | certain | 1 |" in card and "mastered" not in card


def test_equal_releases_give_equal_bytes(sample, tmp_path):
    other = build_sample(tmp_path / "other" / "store")
    one, two = (export(s.store, s.second_release, tmp_path / name) for s, name in ((sample, "one"), (other, "two")))
    assert (one / CHECKSUMS).read_text() == (two / CHECKSUMS).read_text()


def test_what_is_committed_later_does_not_change_an_old_release(build, tmp_path):
    sample = build(tmp_path / "store")
    releases = (sample.first_release, sample.second_release)
    before = [(export(sample.store, release, tmp_path / "out") / CHECKSUMS).read_text() for release in releases]
    tool = {"tool_id": "shop.buy", "name": "buy", "server": "shop", "domain": "retail", "world": "retail", "changes_state": True}
    tag = {"task_id": "task-3", "purpose": "probe", "difficulty": 2, "successes": 1, "region": "uncertain"}
    sample.store.commit(
        [
            *funnel_parts(sample.store, "run-2", n=7),
            write(sample.store, "frames", {"run": "run-2", "query_id": "q-0", "frame_id": "frame-lamp", "status": "admitted"}, n=7),
            write(sample.store, "tools", tool | {"description": "Buys one, at last", "parameters": "{}"}, n=7),
            write(sample.store, "tags", tag | {"policy_id": "policy-2", "k": 8}, tag | {"policy_id": "policy-1", "k": 16}, n=7),
            write(sample.store, "diversity", {"run": "other", "round": 0, "metric": "domain_entropy_bits", "value": 9.0, "n": 1}, n=7),
            write(sample.store, "diversity", {"run": "run-synthesis", "round": 9, "metric": "tool_coverage", "value": 1.0, "n": 1}, n=8),
        ]
    )
    assert [(export(sample.store, release, tmp_path / "out") / CHECKSUMS).read_text() for release in releases] == before


def test_an_earlier_export_is_replaced_and_anything_else_is_left_alone(sample, tmp_path):
    out = export(sample.store, sample.first_release, tmp_path / "out")
    export(sample.store, sample.second_release, out)
    assert not (out / "seed.conversations.jsonl").exists()
    (tmp_path / "empty").mkdir()
    assert (export(sample.store, sample.second_release, tmp_path / "empty") / CHECKSUMS).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "out"], "no drafts are left behind"


def _with_a_thesis(out):
    (out / "thesis.txt").write_text("do not lose")


def _with_a_folder(out):
    (out / "src").mkdir()
    (out / "src" / "a.py").write_text("do not lose")


def _with_another_manifest(out):
    (out / "manifest.json").write_text("{}")


def _without_checksums(out):
    (out / CHECKSUMS).unlink()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_with_a_thesis, "holds thesis.txt"),
        (_with_a_folder, "holds src"),
        (_with_another_manifest, "not an export"),
        (_without_checksums, "not an export"),
    ],
)
def test_a_folder_that_holds_anything_but_an_export_is_left_alone(sample, tmp_path, change, words):
    out = export(sample.store, sample.first_release, tmp_path / "out")
    change(out)
    before = {path.relative_to(out): path.is_file() and path.read_bytes() for path in out.rglob("*")}
    with pytest.raises(BadInput, match=words):
        export(sample.store, sample.second_release, out)
    assert {path.relative_to(out): path.is_file() and path.read_bytes() for path in out.rglob("*")} == before


def test_an_export_that_was_killed_while_it_replaced_another_is_mended_by_the_next(sample, tmp_path, monkeypatch):
    out = export(sample.store, sample.first_release, tmp_path / "out")
    before = (out / CHECKSUMS).read_text()
    (tmp_path / "out").rename(tmp_path / ".tmp-0123abcd-out")
    os.utime(tmp_path / ".tmp-0123abcd-out", (0, 0))
    export(sample.store, sample.first_release, out).rename(tmp_path / ".tmp-old-0123abcd-out")
    with monkeypatch.context() as broken, pytest.raises(RuntimeError):
        broken.setattr("storage.releases.export.card", _fail)
        export(sample.store, sample.second_release, out)
    assert (out / CHECKSUMS).read_text() == before, "it is back, though the next export failed"
    (tmp_path / ".tmp-old-0123abcd-out").mkdir()
    export(sample.store, sample.second_release, out)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def _fail(*_, **__):
    raise RuntimeError("killed")


def test_bad_requests_write_nothing(sample, tmp_path):
    with pytest.raises(BadInput, match="no release release-x"):
        export(sample.store, "release-x", tmp_path / "out")
    with pytest.raises(BadInput, match="not one of trl, verl, roll"):
        export(sample.store, sample.first_release, tmp_path / "out", "csv")
    assert list(tmp_path.iterdir()) == []


def test_a_store_without_the_tools_signatures_says_so(tmp_path):
    sample = build_sample(tmp_path / "store")
    bare = Store(tmp_path / "bare")
    shutil.copytree(sample.store.lake, bare.lake)
    parts = sample.store.query("SELECT part_id FROM parts WHERE table_name <> 'tools'")["part_id"]
    bare.commit([part for name in parts if (part := bare.find(name))])
    with pytest.raises(HeadraceError, match="tool search_products of world retail"):
        export(bare, sample.first_release, tmp_path / "out")
    assert not (tmp_path / "out").exists()
