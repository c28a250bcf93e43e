"""A world of the user's own is found again from the store alone, in any process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from storage.errors import BadInput
from storage.store import Store, part_id
from synth.worlds import WORLDS, WorldName, WorldRange, admitted_names, make_world, names_in
from synth.worlds.stored_worlds import worlds_frame

STARTER = Path(__file__).parents[3] / "synth" / "worlds" / "declarative" / "starter.yaml"


def test_a_file_stands_for_the_name_of_its_world(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STARTER.read_text())

    name = TypeAdapter(WorldName).validate_python(str(file))

    assert name.startswith("tool_library@")
    assert name in WORLDS and name in WORLDS.names()
    assert make_world(name, 3).state()


def test_a_file_that_is_no_spec_is_refused_with_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STARTER.read_text().replace("loan.status == out", "loan.stauts == out"))

    with pytest.raises(ValidationError, match="stauts"):
        TypeAdapter(WorldName).validate_python(str(file))
    with pytest.raises(ValidationError, match="no such file"):
        TypeAdapter(WorldName).validate_python("nowhere.yaml")


def test_another_process_finds_it_in_the_store(tmp_path: Path) -> None:
    name = TypeAdapter(WorldName).validate_python(str(STARTER))
    store = Store(tmp_path / "store")
    store.commit([store.write("worlds", part_id("worlds", [name], {}, 1), worlds_frame(["retail", "gen-3", name]))])

    code = (
        "import sys, hashlib, json; from storage.store import Store; from synth.worlds import WORLDS, make_world;"
        "from synth.worlds.stored_worlds import register_stored; name = sys.argv[2]; assert name not in WORLDS;"
        "register_stored(Store(sys.argv[1])); register_stored(Store(sys.argv[1]));"
        "print(json.dumps(make_world(name, 3).state(), sort_keys=True) == sys.stdin.read())"
    )
    state = json.dumps(make_world(name, 3).state(), sort_keys=True)
    done = subprocess.run([sys.executable, "-c", code, str(store.root), name], input=state, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr
    assert store.query("SELECT world FROM worlds")["world"].to_list() == [name]


def test_a_range_names_generated_worlds() -> None:
    adapter = TypeAdapter(WorldRange)
    assert names_in([adapter.validate_python("gen-2..4"), "retail", "gen-3"]) == ("gen-2", "gen-3", "gen-4", "retail")
    for wrong in ("gen-4..2", "gen-0..5000", "gen-1...3"):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


def test_of_a_range_only_what_is_admitted_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"gen-2"}

    class Some:
        def __getitem__(self, name: str) -> str:
            if name in refused:
                raise BadInput(f"{name} admits no task")
            return name

    monkeypatch.setattr("synth.worlds.WORLDS", Some())
    assert admitted_names(["gen-1..3", "retail"]) == ("gen-1", "gen-3", "retail")
    assert admitted_names(["gen-1..3", "gen-2"]) == ("gen-1", "gen-2", "gen-3"), "one that is named is not passed over in silence"


def test_a_domain_with_two_versions_is_refused_with_their_names(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(STARTER.read_text().replace("domain: tool_library", "domain: shed", 1))
    second.write_text(first.read_text().replace("rows: ", "rows: 1", 1))
    one = TypeAdapter(WorldName).validate_python(str(first))
    assert TypeAdapter(WorldName).validate_python("shed") == one
    TypeAdapter(WorldName).validate_python(str(second))
    with pytest.raises(ValidationError, match=r"'shed' has several versions here; name one of shed@\w+, shed@\w+"):
        TypeAdapter(WorldName).validate_python("shed")
