"""Parts: what their hashes see and do not see, and what is refused."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import HeadraceError
from storage.parts import content_hash, find_written, fit, part_id, write_part
from storage.tables import TABLES
from tests.storage.conftest import rows

texts = st.one_of(st.none(), st.text(max_size=12))
trajectory = st.fixed_dictionaries(
    {
        "domain": texts,
        "world_seed": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "reward": st.one_of(st.none(), st.floats(0, 1)),
        "accepted": st.one_of(st.none(), st.booleans()),
        "tools_used": st.one_of(st.none(), st.lists(texts, max_size=3)),
    }
)
several = st.lists(trajectory, max_size=6)


def frame(given: list[dict]) -> pl.DataFrame:
    return rows("trajectories", *({"trajectory_id": f"t{n}"} | row for n, row in enumerate(given)))


def hash_of(given: list[dict]) -> str:
    return content_hash(fit(frame(given), "trajectories"), "trajectories")


@given(several, st.randoms())
def test_the_order_of_rows_is_not_hashed(given_rows, random):
    made = frame(given_rows)
    order = list(range(made.height))
    random.shuffle(order)
    assert content_hash(made[order], "trajectories") == content_hash(made, "trajectories")


@given(several, several)
def test_equal_hashes_mean_equal_rows(first, second):
    assert (hash_of(first) == hash_of(second)) == frame(first).equals(frame(second), null_equal=True)


@pytest.mark.slow
@given(several)
def test_a_part_comes_back_from_disk_as_it_was(tmp_path_factory, given_rows):
    root, part = tmp_path_factory.mktemp("parts"), part_id("trajectories", [], {}, 1)
    written = write_part(root, "trajectories", part, frame(given_rows))
    back = pl.read_parquet(root / written.path)
    assert back.equals(frame(given_rows), null_equal=True)
    assert content_hash(back, "trajectories") == written.content_hash
    assert find_written(root, part) == written


def test_null_and_empty_and_shifted_text_differ():
    def of(*values):
        return content_hash(rows("policies", *({"policy_id": f"p{n}", "stage_id": value} for n, value in enumerate(values))), "policies")

    assert len({of(None), of(""), of("a", "b"), of("ab", ""), of("", "ab"), of("a", None)}) == 6


def test_unhashed_columns_are_not_seen():
    step = {"run": "r", "position": 0, "step": "exact", "rows_in": 1, "kept": 1, "dropped": 0}
    slow, fast = rows("funnel", step | {"seconds": 9.0, "size_bytes": 5}), rows("funnel", step | {"seconds": 0.1})
    assert content_hash(slow, "funnel") == content_hash(fast, "funnel")


def test_the_hash_is_the_same_in_every_process_and_release():
    """A fixed value: whoever changes it changes every store's hash, and must mean to."""
    assert hash_of([{"domain": "retail", "tools_used": ["a", None, "灯"], "reward": 0.5}]) == "1315bd75f3e7e6ef625dc2a9fcb108a4"


def test_a_part_id_depends_on_all_it_is_made_from_and_on_nothing_else():
    same = part_id("tasks", ["a"], {"k": 1, "j": 2}, 1)
    assert same == part_id("tasks", ["a"], {"j": 2, "k": 1}, 1)
    others = [
        part_id("tasks", ["b"], {"k": 1, "j": 2}, 1),
        part_id("tasks", ["a"], {"k": 2, "j": 2}, 1),
        part_id("tasks", ["a"], {"k": 1, "j": 2}, 2),
    ]
    assert len({same, *others, part_id("tags", ["a"], {"k": 1, "j": 2}, 1)}) == 5


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (pl.DataFrame({"policy_id": ["p"]}), "lacks"),
        (rows("policies", {"policy_id": "p"}).with_columns(extra=pl.lit(1)), "unknown columns"),
        (rows("policies", {"policy_id": "p"}).with_columns(path=pl.lit(1.5)), "path"),
    ],
)
def test_columns_that_are_not_the_tables_are_refused(tmp_path, bad, word):
    with pytest.raises(ValueError, match=word):
        write_part(tmp_path, "policies", part_id("policies", [], {}, 1), bad)
    assert not list(tmp_path.rglob("*.parquet"))


def test_casts_that_lose_nothing_are_made():
    given_frame = pl.DataFrame({name: [None] for name in TABLES["funnel"].columns}).with_columns(
        run=pl.Series(["r"], dtype=pl.Categorical), position=pl.lit(3, dtype=pl.UInt8), seconds=pl.lit(1)
    )
    assert fit(given_frame, "funnel").schema == pl.Schema(TABLES["funnel"].columns)


def test_doubled_keys_are_refused(tmp_path):
    doubled = rows("policies", {"policy_id": "p"}, {"policy_id": "q"}, {"policy_id": "p"})
    with pytest.raises(HeadraceError, match="'policy_id': 'p'"):
        write_part(tmp_path, "policies", part_id("policies", [], {}, 1), doubled)


def test_a_part_of_another_table_is_refused(tmp_path):
    with pytest.raises(ValueError, match="belongs to tasks"):
        write_part(tmp_path, "policies", part_id("tasks", [], {}, 1), rows("policies"))


def test_a_torn_file_is_no_part(tmp_path):
    part = part_id("policies", [], {}, 1)
    written = write_part(tmp_path, "policies", part, rows("policies", {"policy_id": "p"}))
    path = tmp_path / written.path
    path.write_bytes(path.read_bytes()[:-20])
    assert find_written(tmp_path, part) is None
