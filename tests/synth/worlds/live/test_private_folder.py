"""A private folder is set back exactly, whatever a server made of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from synth.worlds.live.copies.copy_errors import ServerSpoke
from synth.worlds.live.copies.mcp_session import RawResult
from synth.worlds.live.copies.private_folder import Contents, folder_bytes, read_folder, write_folder
from synth.worlds.live.live_spec import parse_live_spec
from synth.worlds.live.observations import compile_shower

MIB = 2**20


def look(contents: Contents) -> dict[str, tuple[bytes | None, str | None]]:
    return {path: (entry.data, entry.link) for path, entry in contents.items()}


def test_files_folders_links_and_pipes_are_set_back(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.txt").write_text("one")
    (tmp_path / "x").write_text("file")
    (tmp_path / "link").symlink_to("/etc/passwd")
    before = read_folder(tmp_path, MIB)
    (tmp_path / "x").unlink()
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "inner").write_text("new")
    (tmp_path / "a" / "b" / "c.txt").unlink()
    (tmp_path / "a" / "b").rmdir()
    (tmp_path / "a" / "b").write_text("a file now")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").unlink()
    write_folder(tmp_path, before)
    assert look(read_folder(tmp_path, MIB)) == look(before)
    assert not (tmp_path / "pipe").exists()
    assert (tmp_path / "link").is_symlink()


def test_sparse_files_count_by_their_length_and_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(50 * MIB)
    assert folder_bytes(tmp_path, MIB) > MIB
    with pytest.raises(ServerSpoke, match="more than 1 MiB"):
        read_folder(tmp_path, MIB)


def test_deep_folders_are_refused(tmp_path: Path) -> None:
    here = tmp_path
    for _ in range(60):
        here = here / "d"
        here.mkdir()
    assert folder_bytes(tmp_path, MIB) > MIB
    with pytest.raises(ServerSpoke, match="48 deep"):
        read_folder(tmp_path, MIB)


def test_a_mask_leaves_json(tmp_path: Path) -> None:
    mask = {"pattern": r"\b1[5-9]\d{8}\b", "tool": "now", "shown": "(a time)"}
    show = compile_shower(parse_live_spec({"live": "x", "command": ["x"], "volatile": [mask]}, "x"))
    assert show("now", RawResult(('{"t": 1712345678, "n": 5}',), None, False)).content == '{"t": "(a time)", "n": 5}'
    assert show("other", RawResult(('{"t": 1712345678}',), None, False)).content == '{"t": 1712345678}'
