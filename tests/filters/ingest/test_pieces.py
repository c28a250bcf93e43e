"""Pieces of files: whatever the cut, whoever reads, in whatever order, the rows are those that were written."""

import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters import ingest
from filters.funnel import FunnelConfig, curate
from filters.ingest import IngestConfig, Piece, Source, inspect, lines, read_piece
from storage.errors import BadInput, HeadraceError
from storage.store import Store

KINDS = ["parquet", "jsonl", "csv", "txt"]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
LINE = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n\ufeff"), max_size=30)


def written(path: Path, texts: list[str], group_rows: int = 700) -> Path:
    frame = pl.DataFrame({"id": range(len(texts)), "query": texts}, schema={"id": pl.Int64, "query": pl.String})
    if path.suffix == ".parquet":
        frame.write_parquet(path, row_group_size=group_rows, compression="uncompressed")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"query": text}, ensure_ascii=len(text) % 2 == 0) + "\n" for text in texts), encoding="utf-8")
    elif path.suffix == ".csv":
        frame.write_csv(path)
    else:
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def texts_of(piece: Piece) -> list[list[str | None]]:
    return [batch.to_list() for batch in read_piece(piece)]


def read_alone(source: Source) -> list[str | None]:
    """The file's texts, its pieces read last to first, each as another process would get it."""
    read = {index: texts_of(pickle.loads(pickle.dumps(piece))) for index, piece in reversed(list(enumerate(source.pieces)))}
    assert [tuple(map(len, read[index])) for index in range(len(read))] == [piece.batches for piece in source.pieces]
    return [text for index in range(len(read)) for batch in read[index] for text in batch]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_whatever_the_cut_it_gives_what_was_written(tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject) -> None:
    """Given any texts, row groups, blocks and batch limits, when pieces are read alone in any order, then they give the texts."""
    texts = data.draw(st.lists(LINE if kind == "txt" else TEXT, min_size=1, max_size=60)) * data.draw(st.integers(1, 30))
    block = data.draw(st.sampled_from([5, 64, 1000, 1 << 20]))
    size_bytes = data.draw(st.sampled_from([1, 100, 1 << 20]))
    path = written(tmp_path_factory.mktemp("cut") / f"log.{kind}", texts, data.draw(st.integers(1, 3000)))
    with mock.patch.object(lines, "BLOCK_BYTES", block), mock.patch.object(ingest, "BATCH_BYTES", size_bytes):
        try:
            (source,) = inspect([path], IngestConfig(column="query", batch_rows=1000))
        except BadInput as error:
            assert "the file is empty" in str(error)
            assert not "".join(texts).strip()
            return
        assert read_alone(source) == texts
    assert max(rows for piece in source.pieces for rows in piece.batches) <= 1500


@pytest.mark.slow
def test_another_process_inspects_and_reads_the_same(tmp_path: Path) -> None:
    texts = [f"query number {index} 请问" for index in range(5000)]
    paths = [written(tmp_path / f"log.{kind}", texts) for kind in KINDS]
    config = IngestConfig(column="query", batch_rows=1000)
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        sources = inspect(paths, config, executor)
        assert sources == inspect(paths, config)
        pieces = [piece for source in sources for piece in source.pieces]
        assert [text for read in executor.map(texts_of, pieces) for batch in read for text in batch] == texts * len(KINDS)


def test_row_groups_are_never_torn(tmp_path: Path) -> None:
    """Given small and large row groups, then small ones are read together, and large ones are shared out evenly within their piece."""
    texts = [str(index) for index in range(8000)]
    (small,) = inspect([written(tmp_path / "small.parquet", texts, 300)], IngestConfig(column="query", batch_rows=1000))
    (large,) = inspect([written(tmp_path / "large.parquet", [*texts, "one more"], 4000)], IngestConfig(column="query", batch_rows=1200))
    assert [piece.batches for piece in small.pieces] == [(900,)] * 8 + [(800,)]
    assert [piece.batches for piece in large.pieces] == [(1334, 1334, 1332), (1334, 1334, 1332), (1,)]
    assert read_alone(small) == texts


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "txt"])
def test_long_texts_make_small_batches(tmp_path: Path, kind: str) -> None:
    texts = [f"{index}".ljust(1 << 16, "x") for index in range(300)]
    with mock.patch.object(ingest, "BATCH_BYTES", 4 << 20):
        (source,) = inspect([written(tmp_path / f"log.{kind}", texts)], IngestConfig(column="query"))
    assert max(rows for piece in source.pieces for rows in piece.batches) << 16 <= 2 * (4 << 20)
    assert read_alone(source) == texts


# ---- files that change --------------------------------------------------------------------------------------------------------


def changed(source: Source) -> None:
    with pytest.raises(HeadraceError, match="no longer what it was when the run began") as caught:
        read_alone(source)
    assert source.location in str(caught.value)
    assert not isinstance(caught.value, BadInput)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_changes_after_it_was_inspected_is_an_error(tmp_path: Path, kind: str) -> None:
    texts = [f"query number {index:05}" for index in range(3000)]
    path = written(tmp_path / f"log.{kind}", texts)
    (source,) = inspect([path], IngestConfig(column="query", batch_rows=1000))
    before, content = path.stat(), path.read_bytes()

    path.write_bytes(content + b"\n")
    changed(source)
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    changed(source)
    path.write_bytes(content.replace(b"query number 02500", b"query number 09999"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    changed(source)
    path.unlink()
    changed(source)


class InTurn:
    """An executor that does each thing when its result is asked for."""

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
        return map(fn, *iterables)


def test_a_log_that_grows_while_it_is_curated_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    """Given a log to which a row is added when its first piece has been read, then the run ends in an error and nothing is committed."""
    path = written(tmp_path / "log.jsonl", [f"find a cafe near gate {index}" for index in range(5000)])

    def progress(label: str, done: int, _total: int) -> None:
        if (label, done) == ("normalise", 1):
            with path.open("a") as log:
                log.write('{"query": "one more"}\n')

    store = Store(tmp_path / "store")
    config = FunnelConfig(ingest=IngestConfig(column="query", batch_rows=1000))
    with pytest.raises(HeadraceError, match="no longer what it was when the run began"):
        curate(store, [path], config, progress=progress, executor=InTurn())
    assert not store.exists()


def test_what_was_inspected_is_inspected_again_only_when_it_changed(tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl", ["one", "two"])
    (first,) = inspect([path], IngestConfig(column="query"))
    with mock.patch.object(ingest, "_cut", side_effect=AssertionError):
        assert inspect([path], IngestConfig(column="query")) == [first]
    written(path, ["one", "two", "three"])
    (second,) = inspect([path], IngestConfig(column="query"))
    assert (first.rows, second.rows) == (2, 3)
    assert first.content_hash != second.content_hash
