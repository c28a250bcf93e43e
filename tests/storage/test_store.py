"""The store: what commits, what does not, what readers see, and who is refused."""

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import polars as pl
import pytest

from storage.errors import BadInput, HeadraceError
from storage.files import file_lock
from storage.store import Store, part_id
from storage.tables import TABLES, schema_version
from tests.storage.conftest import build_sample, funnel_parts, rows, write


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


def policy(name: str, **columns) -> dict:
    return {"policy_id": name, "stage_id": "s", "path": "models/x", "weights_hash": "h"} | columns


def python(code: str, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


# ---- what is there -----------------------------------------------------------------------------------------------------


def test_a_store_that_does_not_exist_has_empty_tables_and_leaves_no_trace(store):
    for table, schema in TABLES.items():
        found = store.query(f"SELECT * FROM {table}")
        assert found.is_empty()
        assert {name: kind for name, kind in found.schema.items() if name != "part_id"} == schema.columns
    assert store.find(part_id("tasks", [], {}, 1)) is None
    assert not store.exists()
    assert not store.root.exists()


def test_rows_count_only_once_committed(store):
    part = write(store, "rollouts", {"rollout_id": "r", "messages": "[]"})
    assert store.query("FROM rollouts").is_empty()
    assert store.find(part.part_id) == part
    store.commit([part])
    assert store.query("SELECT rollout_id, messages FROM rollouts").rows() == [("r", "[]")]
    assert store.find(part.part_id) == part


def test_a_second_commit_of_a_part_id_is_a_no_op(store):
    first = write(store, "policies", policy("p"))
    store.commit([first])
    stamp, digest = store.root.joinpath("catalog.read.duckdb").stat().st_mtime_ns, store.content_hash()
    other = store.write("policies", first.part_id, rows("policies", policy("p", weights_hash="other")))
    store.commit([other])
    assert not (store.root / other.path).exists()
    store.commit([first, first])
    assert store.query("SELECT weights_hash FROM policies").rows() == [("h",)]
    assert store.content_hash() == digest
    assert store.root.joinpath("catalog.read.duckdb").stat().st_mtime_ns == stamp


def test_one_bad_part_keeps_the_whole_commit_out(store):
    good, gone = write(store, "policies", policy("p")), write(store, "rollouts", {"rollout_id": "r"})
    (store.root / gone.path).unlink()
    with pytest.raises(HeadraceError, match="no file"):
        store.commit([good, gone])
    assert store.query("FROM policies").is_empty()
    store.commit([good])
    assert store.query("FROM policies").height == 1


def test_the_same_row_from_two_parts_is_shown_once(store):
    store.commit(
        [write(store, "policies", policy("p"), policy("q"), n=1), write(store, "rollouts", {"rollout_id": "a"}, {"rollout_id": "b"}, n=1)]
    )
    store.commit(
        [
            write(store, "policies", policy("q", path="elsewhere"), policy("r"), n=2),
            write(store, "rollouts", {"rollout_id": "b"}, {"rollout_id": "c"}, n=2),
        ]
    )
    store.commit(
        [write(store, "rollouts", {"rollout_id": "d"}, n=3), write(store, "rollouts", {"rollout_id": "d"}, {"rollout_id": "e"}, n=4)]
    )
    assert sorted(store.query("SELECT policy_id FROM policies")["policy_id"]) == ["p", "q", "r"]
    assert sorted(store.query("SELECT rollout_id FROM rollouts")["rollout_id"]) == ["a", "b", "c", "d", "e"]


def test_a_known_key_with_other_content_is_refused(store):
    store.commit([write(store, "policies", policy("p"))])
    with pytest.raises(HeadraceError, match=r"'policy_id': 'p'.*other content"):
        store.commit([write(store, "policies", policy("p", weights_hash="other"), n=2)])
    assert store.query("SELECT weights_hash FROM policies").rows() == [("h",)]


def test_an_empty_part_is_done_and_says_nothing(store):
    store.commit([write(store, "rollouts", {"rollout_id": "a"}, n=1)])
    digest, empty = store.content_hash(), write(store, "rollouts", n=2)
    store.commit([empty, write(store, "policies", n=3)])
    assert store.find(empty.part_id) == empty
    assert store.query("FROM rollouts").height == 1
    assert store.content_hash() == digest


def test_null_keys_are_compared_like_values(store):
    tag = {"task_id": "t", "policy_id": None, "purpose": "static", "difficulty": 2, "k": None}
    store.commit([write(store, "tags", tag, n=1)])
    store.commit([write(store, "tags", tag, n=2)])
    assert store.query("FROM tags").height == 1


# ---- content hash ------------------------------------------------------------------------------------------------------


def test_the_content_hash_does_not_depend_on_place_time_or_order(tmp_path):
    one, two = Store(tmp_path / "a"), Store(tmp_path / "deep" / "b")
    names = [f"p{n}" for n in range(5)]
    one.commit([write(one, "policies", policy(name), n=n) for n, name in enumerate(names)])
    for n, name in reversed(list(enumerate(names))):
        two.commit([write(two, "policies", policy(name, path="/other/place"), n=n)])
    assert one.content_hash() == two.content_hash()
    two.commit([write(two, "policies", policy("more"), n=9)])
    assert one.content_hash() != two.content_hash()


@pytest.mark.slow
def test_a_whole_store_made_twice_has_one_hash(tmp_path):
    assert build_sample(tmp_path / "a").store.content_hash() == build_sample(tmp_path / "b").store.content_hash()


# ---- readers -----------------------------------------------------------------------------------------------------------


def test_plain_duckdb_in_the_stores_folder_answers(sample):
    code = "import duckdb, sys; print(duckdb.connect('catalog.read.duckdb', read_only=True).sql(sys.argv[1]).fetchall())"
    done = python(code, "SELECT count(*), count(text) FROM queries JOIN verdicts USING (query_id)", cwd=sample.store.root)
    assert done.stdout.strip() == "[(6, 6)]", done.stderr


def test_a_store_can_be_moved(tmp_path):
    store = build_sample(tmp_path / "a b'c").store
    store.root.rename(tmp_path / "moved")
    assert Store(tmp_path / "moved").query("SELECT count(*) AS n FROM rollouts").item() == 8


def test_readers_cannot_write_and_load_no_extension(sample):
    connection = sample.store.connect()
    with pytest.raises(duckdb.Error):
        connection.execute("CREATE TABLE store.more (a INTEGER)")
    with pytest.raises(duckdb.Error):
        connection.execute("DELETE FROM tasks")
    settings = connection.execute("SELECT current_setting('autoinstall_known_extensions'), current_setting('autoload_known_extensions')")
    assert settings.fetchone() == (False, False)
    assert connection.execute("SELECT count(*) FROM queries").fetchone() == (6,)
    connection.close()


def test_an_open_reader_keeps_its_view_and_query_sees_each_commit(store):
    store.commit([write(store, "rollouts", {"rollout_id": "a"}, n=1)])
    other, held = Store(store.root), store.connect()
    assert other.query("FROM rollouts").height == 1
    store.commit([write(store, "rollouts", {"rollout_id": "b"}, n=2)])
    assert held.execute("SELECT count(*) FROM rollouts").fetchone() == (1,)
    assert store.query("FROM rollouts").height == other.query("FROM rollouts").height == 2


def test_threads_share_a_store(store):
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for i in range(3):
                store.commit([write(store, "rollouts", {"rollout_id": f"{n}-{i}"}, n=10 * n + i)])
                assert store.query("SELECT count(*) AS n FROM rollouts WHERE rollout_id = ?", [f"{n}-{i}"]).item() == 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert store.query("FROM rollouts").height == 12


def test_a_store_travels_to_other_processes(sample):
    assert pickle.loads(pickle.dumps(sample.store)).content_hash() == sample.store.content_hash()


@pytest.mark.slow
def test_many_parts_stay_one_view(store):
    parts = [write(store, "rollouts", {"rollout_id": f"r{n}", "messages": "[]"}, n=n) for n in range(300)]
    store.commit(parts[:299])
    write(store, "rollouts", {"rollout_id": "stray"}, n=999)
    store.commit(parts)
    assert store.query("SELECT count(*) AS n, count(DISTINCT rollout_id) AS d FROM rollouts").rows() == [(300, 300)]


# ---- several processes -------------------------------------------------------------------------------------------------

RACER = """
import sys
from storage.store import Store
from tests.storage.conftest import write
store, name = Store(sys.argv[1]), sys.argv[2]
for n in range(6):
    shared = write(store, "rollouts", {"rollout_id": f"shared-{n}", "messages": name}, n=n)
    own = write(store, "policies", {"policy_id": f"{name}-{n}", "weights_hash": "h"}, n=f"{name}{n}")
    store.commit([shared, own])
    assert store.query("SELECT count(*) AS n FROM policies WHERE policy_id = ?", [f"{name}-{n}"]).item() == 1
"""


@pytest.mark.slow
def test_processes_race_and_nothing_is_lost_or_doubled(store):
    """Both make the same rollout parts with different content: the first commit of each wins, whole."""
    racers = [subprocess.Popen([sys.executable, "-c", RACER, str(store.root), name], stderr=subprocess.PIPE) for name in ("one", "two")]
    for racer in racers:
        _, error = racer.communicate(timeout=60)
        assert racer.returncode == 0, error.decode()
    assert sorted(store.query("SELECT rollout_id FROM rollouts")["rollout_id"]) == [f"shared-{n}" for n in range(6)]
    assert store.query("FROM policies").height == 12
    registered = set(store.query("SELECT path FROM parts WHERE table_name = 'rollouts'")["path"])
    assert registered == {str(path.relative_to(store.root)) for path in store.lake.glob("rollouts/*.parquet")}


def test_a_store_that_is_held_too_long_is_a_clear_error(store):
    part = write(store, "policies", policy("p"))
    store.root.mkdir(exist_ok=True)
    with file_lock(store.root / "catalog.lock", wait_s=1):
        patient = Store(store.root, lock_wait_s=0.1)
        with pytest.raises(HeadraceError, match=rf"process {os.getpid()} on .* did not finish within 0.1 s"):
            patient.commit([part])
    patient.commit([part])
    assert patient.query("FROM policies").height == 1


# ---- repair, refusal ---------------------------------------------------------------------------------------------------

DIES_BEFORE_PUBLISHING = """
import os, signal, sys
import storage.store
from storage.store import Store
from tests.storage.conftest import write
store = Store(sys.argv[1])
part = write(store, "rollouts", {"rollout_id": "b"}, n=2)
real = storage.store.replace_atomically
def dies(target, fill):
    if target.name == "catalog.read.duckdb":
        os.kill(os.getpid(), signal.SIGKILL)
    real(target, fill)
storage.store.replace_atomically = dies
store.commit([part])
"""


@pytest.mark.parametrize("is_first", [True, False])
def test_what_was_committed_but_not_published_is_published_by_the_next_to_come(store, is_first):
    if not is_first:
        store.commit([write(store, "rollouts", {"rollout_id": "a"}, n=1)])
    assert python(DIES_BEFORE_PUBLISHING, store.root).returncode == -9
    expected = ["b"] if is_first else ["a", "b"]
    assert store.query("SELECT rollout_id FROM rollouts ORDER BY 1")["rollout_id"].to_list() == expected, "by one who had it open"
    assert Store(store.root).query("FROM rollouts").height == len(expected)
    assert not (store.root / "catalog.stale").exists()


def test_while_another_process_commits_readers_take_what_was_published(store):
    store.commit([write(store, "rollouts", {"rollout_id": "a"})])
    with file_lock(store.root / "catalog.lock", wait_s=1):
        (store.root / "catalog.stale").touch()
        assert Store(store.root).query("FROM rollouts").height == 1


def test_a_store_of_another_version_is_refused_before_anything_is_touched(tmp_path):
    root = tmp_path / "store"
    Store(root).commit([write(Store(root), "policies", policy("p"))])
    for name in ("catalog.duckdb", "catalog.read.duckdb"):
        with duckdb.connect(str(root / name)) as connection:
            connection.execute("UPDATE schema_version SET version = 'another'")
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    with pytest.raises(BadInput, match=f"schema version another, this Headrace has {schema_version()}"):
        Store(root)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 400])
def test_a_file_that_is_no_catalogue_is_refused(tmp_path, content):
    (tmp_path / "catalog.read.duckdb").write_bytes(content)
    with pytest.raises(BadInput, match="catalog"):
        Store(tmp_path)


@pytest.mark.parametrize("name", ["catalog.duckdb", "catalog.read.duckdb"])
def test_another_programs_database_is_refused_and_nothing_is_written_into_it(tmp_path, name):
    with duckdb.connect(str(tmp_path / name)) as connection:
        connection.execute("CREATE TABLE theirs (a INTEGER)")
    with pytest.raises(BadInput, match="not a Headrace store"):
        Store(tmp_path)
    with duckdb.connect(str(tmp_path / name), read_only=True) as connection:
        assert connection.sql("SELECT table_name FROM duckdb_tables").fetchall() == [("theirs",)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a,b", "may not contain ,"),
        ("what?/store", r"may not contain \?"),
        ("a\\b", "may not contain"),
        ("file", "file cannot be a store: Not a directory; name another folder"),
        ("file/store", "file/store cannot be a store: Not a directory"),
        ("a" * 300, "cannot be a store: File name too long"),
        ("a\0b", "cannot be a store"),
        (".", "holds file, which is not of a store"),
    ],
)
def test_paths_that_cannot_be_stores_are_refused(tmp_path, name, words):
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match=words):
        Store(tmp_path / name)


def test_the_folder_that_one_is_in_is_no_store_unless_it_is_one_already(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="needs a separate folder"):
        Store("")
    store = Store(tmp_path)
    store.commit([write(store, "policies", policy("p"))])
    assert Store("").exists()


@pytest.mark.parametrize("first", ["lake", "models", ".headrace", "catalog.lock"])
def test_what_a_run_leaves_before_its_first_commit_is_a_store(tmp_path, first):
    (tmp_path / first).touch()
    Store(tmp_path)


def test_old_temporary_files_are_swept_and_young_ones_are_not(store):
    folder = store.lake / "policies"
    folder.mkdir(parents=True)
    old, young = folder / ".tmp-1-x", folder / ".tmp-2-y"
    old.touch()
    young.touch()
    os.utime(old, (0, 0))
    store.commit([write(store, "policies", policy("p"))])
    assert not old.exists()
    assert young.exists()


def test_lazy_frames_are_written(store):
    part = store.write("policies", part_id("policies", [], {}, 1), rows("policies", policy("p")).lazy().filter(pl.lit(True)))
    store.commit([part])
    assert store.query("FROM policies").height == part.rows == 1


def test_a_store_under_a_path_that_is_hard_to_quote(tmp_path):
    store = Store(tmp_path / 'it\'s a "store" 店')
    store.commit(funnel_parts(store))
    assert store.query("FROM queries").height == 6
