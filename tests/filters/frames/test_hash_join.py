"""Joins by key: whatever the partitions, every row is told the first with its key, once."""

from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.frames.hash_join import first_of_key, firsts, write_keys
from filters.frames.workspace import Workspace

LAST = 2**64 - 1
ENDS = [0, 1, 2**62 - 1, 2**62, 2**63 - 1, 2**63, LAST - 1, LAST]
"""Keys at the ends of partitions, where there are two or four."""
SCHEMA = {"row": pl.UInt32, "key_high": pl.UInt64, "key_low": pl.UInt64}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ENDS), st.sampled_from([0, LAST])), max_size=40), st.sampled_from([1, 2, 3, 4, 7]))
def test_partitions_tell_of_every_row_what_one_join_of_all_does(keys: list[tuple[int, int]], partitions: int) -> None:
    rows = pl.DataFrame([(row, *key) for row, key in enumerate(keys)], schema=SCHEMA, orient="row")
    with TemporaryDirectory() as folder:
        work = Workspace(Path(folder))
        for name, half in (("keys-0", rows[: len(keys) // 2]), ("keys-1", rows[len(keys) // 2 :])):
            write_keys(work, name, half)
        parts = [first_of_key(partition, partitions, ["keys-0", "keys-1"], work) for partition in range(partitions)]
    assert pl.concat(parts).sort("row").equals(firsts(rows))


@pytest.mark.parametrize("partitions", [1, 4])
def test_no_key_is_no_row(tmp_path: Path, partitions: int) -> None:
    write_keys(Workspace(tmp_path), "keys", pl.DataFrame(schema=SCHEMA))
    assert first_of_key(0, partitions, ["keys"], Workspace(tmp_path)).height == 0
