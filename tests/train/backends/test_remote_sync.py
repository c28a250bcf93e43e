"""A stage that runs in a copy of what it reads, under a URL of another file system than its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from storage.errors import BadInput, HeadraceError
from storage.object_store.url_files import UrlFiles
from storage.releases.release import load_split
from storage.store import Store, part_id
from synth.conversations.expert import expert_trajectory
from synth.roles.simulate import trajectories_frame
from synth.worlds import WORLDS
from tests.train.backends.small_stages import is_alive, released, spec_of
from tests.train.tiny_policies import retail_tasks
from train.backends import remote_sync
from train.backends.cluster import ClusterConfig
from train.backends.ray import describe_job
from train.backends.remote_sync import RemoteStore, inside
from train.spec import StageSpec

PLACE = "models/stage-1"
(OTHER,) = retail_tasks("report_problem", each=1)


class Sent:
    """A stage of a store whose inputs lie under a URL, as a launcher leaves them."""

    def __init__(self, store: Store, release: str, url: str) -> None:
        self.folder = store.root / PLACE
        self.spec = spec_of(store, release, self.folder)
        self.url, self.remote = url, RemoteStore(url)

    def send(self, spec: StageSpec | None = None) -> None:
        spec = spec or self.spec
        folder = spec.model_out.parent
        spec_json, _ = describe_job(spec, folder, ClusterConfig(address="http://head:8265", checkpoints=self.url))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_text(spec_json)
        self.remote.send_inputs(spec, str(folder.relative_to(spec.store)), folder / "spec.json")


@pytest.fixture
def sent(tmp_path: Path) -> Sent:
    store, release = released(tmp_path / "here" / "store")
    stage = Sent(store, release, f"file://{tmp_path}/there")
    stage.send()
    return stage


TRAIN = """
import json
from pathlib import Path
from storage.releases.release import load_split
from storage.store import Store
from train.spec import StageSpec
spec = StageSpec.model_validate_json(Path("spec.json").read_text())
items = load_split(Store(spec.store), spec.release_id, spec.split)
spec.model_out.mkdir(parents=True)
(spec.model_out / "weights").write_text(" ".join(item.conversation.id for item in items))
(spec.model_out.parent / "result.json").write_text("{}")
"""


def test_a_stage_finds_its_split_under_the_url_and_what_it_makes_comes_back(sent: Sent, tmp_path: Path) -> None:
    """Given the inputs under a URL, when the store is out of reach, then the stage runs all the same, and so does the next one."""
    here = sent.spec.store
    hidden = here.rename(here.with_name("out of reach"))
    assert remote_sync.run(sent.url, PLACE, [sys.executable, "-c", TRAIN]) == 0
    hidden.rename(here)
    sent.remote.fetch_result(PLACE, sent.folder)
    assert sorted(path.name for path in sent.folder.iterdir()) == ["model", "result.json", "spec.json"]
    learned = (sent.folder / "model" / "weights").read_text().split()
    assert learned == [item.conversation.id for item in load_split(Store(here), sent.spec.release_id, "seed") if item.conversation]

    # and the next stage finds its input policy there, which the stage before has sent
    shutil.rmtree(sent.folder / "model")
    sent.send(sent.spec.model_copy(update={"model_in": sent.folder / "model", "model_out": here / "models" / "stage-3" / "model"}))
    sent.remote.fetch_inputs("models/stage-3", tmp_path / "copy")
    spec = StageSpec.model_validate_json((tmp_path / "copy" / "spec.json").read_text())
    assert (spec.store, spec.model_in, spec.model_out) == (Path(), Path(PLACE, "model"), Path("models/stage-3/model"))
    assert (tmp_path / "copy" / PLACE / "model" / "weights").exists()


STEP = """
import json, pathlib, sys, time
folder = pathlib.Path("models/stage-1")
last = sorted(folder.glob("checkpoints/step-*"))
begun = int(last[-1].name[5:]) if last else 0
for step in range(begun + 1, begun + 3):
    with (folder / "metrics.jsonl").open("a") as rows:
        rows.write(json.dumps({"step": step}) + chr(10))
    draft, whole = folder / "checkpoints" / ".draft", folder / "checkpoints" / f"step-{step}"
    draft.mkdir(parents=True)
    (draft / "weights").write_text(str(step))
    (draft / "stage.json").write_text("{}")
    draft.rename(whole)
    for old in folder.glob("checkpoints/step-*"):
        if old != whole:
            (old / "weights").unlink(); (old / "stage.json").unlink(); old.rmdir()
    time.sleep(0.4)
sys.exit(9 if begun < 2 else 0)
"""


def test_a_job_that_dies_is_gone_on_from_its_last_whole_checkpoint_on_another_node(
    sent: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_sync, "_LOOK_S", 0.05)
    there = tmp_path / "there" / PLACE
    work = "import pathlib; pathlib.Path('models/stage-1').mkdir(parents=True, exist_ok=True)\n" + STEP
    assert remote_sync.run(sent.url, PLACE, [sys.executable, "-c", work]) == 9
    assert [path.name for path in (there / "checkpoints").iterdir()] == ["step-2"]
    assert not (there / "result.json").exists()
    (there / "checkpoints" / "step-3").mkdir()
    (there / "checkpoints" / "step-3" / "weights").write_text("half sent")

    # then another node begins after step 2, and what it tells meanwhile can be seen
    ended = work + "(folder / 'model').mkdir(); (folder / 'model' / 'weights').write_text('4'); (folder / 'result.json').write_text('{}')"
    ended = ended.replace("sys.exit(9 if begun < 2 else 0)", "assert begun == 2")
    assert remote_sync.run(sent.url, PLACE, [sys.executable, "-c", ended]) == 0
    sent.remote.fetch_metrics(PLACE, sent.folder)
    assert [json.loads(row)["step"] for row in (sent.folder / "metrics.jsonl").read_text().splitlines()] == [3, 4]
    sent.remote.fetch_result(PLACE, sent.folder)
    assert (sent.folder / "model" / "weights").read_text() == "4"
    assert not (there / "checkpoints").exists()


def test_only_the_first_of_several_nodes_sends_anything(sent: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(remote_sync.RANK, "1")
    before = set((tmp_path / "there").rglob("*"))
    assert remote_sync.run(sent.url, PLACE, [sys.executable, "-c", "import pathlib; pathlib.Path('result.json').write_text('{}')"]) == 0
    assert set((tmp_path / "there").rglob("*")) == before


def test_what_lies_outside_the_store_is_named_as_it_is_and_not_sent(tmp_path: Path) -> None:
    assert inside(tmp_path, tmp_path / "models" / "one") == Path("models/one")
    assert inside(tmp_path, Path("/models/qwen3-8b")) == Path("/models/qwen3-8b")
    assert inside(tmp_path, None) is None


def test_parts_are_sent_once(sent: Sent, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "there" / "lake").rglob("*.parquet")}
    sent.send()
    assert before and {path: path.stat().st_mtime_ns for path in before} == before


def test_what_others_commit_while_parts_are_sent_is_not_asked_for(sent: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a store in which trajectories are committed while a stage's parts go up, then the job finds all that its catalogue names."""
    store, send_once = Store(sent.spec.store), UrlFiles.send_once

    def meanwhile(remote: UrlFiles, path: Path, name: str) -> None:
        expert = expert_trajectory(WORLDS[OTHER.world], OTHER)
        store.commit([store.write("trajectories", part_id("trajectories", ["more"], {}, 1), trajectories_frame([expert], [OTHER]))])
        send_once(remote, path, name)

    monkeypatch.setattr(UrlFiles, "send_once", meanwhile)
    shutil.rmtree(tmp_path / "there")
    sent.send()
    assert store.query("SELECT count(*) FROM parts WHERE table_name = 'trajectories'").item() == 2
    sent.remote.fetch_inputs(PLACE, tmp_path / "copy")
    assert load_split(Store(tmp_path / "copy"), sent.spec.release_id, "seed") == load_split(store, sent.spec.release_id, "seed")


def test_a_stage_goes_on_where_its_progress_cannot_be_sent(
    sent: Sent, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(*_: object) -> None:
        raise HeadraceError("s3://bucket cannot be reached")

    monkeypatch.setattr(RemoteStore, "send_progress", unreachable)
    assert remote_sync.run(sent.url, PLACE, [sys.executable, "-c", TRAIN]) == 0
    assert "s3://bucket cannot be reached; the stage goes on" in capsys.readouterr().err
    sent.remote.fetch_result(PLACE, sent.folder)


def test_a_command_ends_with_the_process_that_mirrors_it(sent: Sent) -> None:
    sleeps = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    command = [sys.executable, "-m", "train.backends.remote_sync", sent.url, PLACE, sys.executable, "-c", sleeps]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
    end = time.monotonic() + 20
    while is_alive(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_alive(child)


@pytest.mark.parametrize("url", ["nothing://bucket", "s3-typo:///x"])
def test_a_url_that_no_driver_knows_is_bad_input(url: str) -> None:
    with pytest.raises(BadInput, match=r"Protocol not known"):
        RemoteStore(url)


def test_a_url_that_cannot_be_written_is_bad_input_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        RemoteStore(f"file://{tmp_path}/file/inside").check()
    RemoteStore(f"file://{tmp_path}/new/folder").check()


def test_a_copy_of_what_is_not_there_fails_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert remote_sync.main([f"file://{tmp_path}", PLACE, "true"]) == 1
    message = capsys.readouterr().err
    assert f"file://{tmp_path} does not have " in message and message.count("\n") == 1
    assert remote_sync.main(["nothing://x", PLACE, "true"]) == 2
    assert "Protocol not known" in capsys.readouterr().err
