"""Forms of a catalogue: JSON Lines, gzip, lists, `{"tools": [...]}`, JSON-RPC answers. All give the same tools; what is wrong is said."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.errors import BadInput
from synth.clusters.business_clusters import cluster_tools
from synth.clusters.catalog import read_catalogue
from synth.writing.cluster.tool_signature import json_types

ROWS = [
    {
        "name": f"{verb}_pet",
        "description": f"{verb} a pet",
        "inputSchema": {"type": "object", "properties": {"pet_id": {"type": "string"}}, "required": ["pet_id"]},
    }
    for verb in ("list", "get", "delete", "feed", "wash")
]
OPENAI = [
    {"type": "function", "function": {**{k: v for k, v in row.items() if k != "inputSchema"}, "parameters": row["inputSchema"]}}
    for row in ROWS
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
RPC: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "result": {"tools": ROWS}}


@pytest.mark.parametrize(
    "data",
    [
        LINES.encode(),
        LINES.rstrip().encode(),
        b"\xef\xbb\xbf" + LINES.encode(),
        gzip.compress(LINES.encode(), mtime=0),
        json.dumps({"tools": ROWS}).encode(),
        json.dumps({"tools": ROWS}, indent=2).encode(),
        gzip.compress(json.dumps({"tools": ROWS}, indent=2).encode(), mtime=0),
        json.dumps(RPC).encode(),
        b"\n\n" + json.dumps(RPC, indent=1).encode(),
        json.dumps(OPENAI).encode(),
        json.dumps(OPENAI, indent=4).encode(),
        json.dumps(ROWS).encode(),
        "".join(json.dumps({**RPC, "id": at, "result": {"tools": [row]}}) + "\n" for at, row in enumerate(ROWS)).encode(),
    ],
    ids=lambda data: data[:24].decode("latin-1"),
)
def test_every_form_gives_the_same_tools(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "pets.json"
    path.write_bytes(data)
    catalogue = read_catalogue(path)
    assert [tool.name for tool in catalogue.tools] == [row["name"] for row in ROWS]
    assert all(tool.parameters["required"] == ["pet_id"] and tool.server == "pets" for tool in catalogue.tools)
    assert (catalogue.rows, catalogue.dropped) == (5, ())


def test_more_pages_of_an_answer_are_told(tmp_path: Path) -> None:
    path = tmp_path / "page.json"
    path.write_text(json.dumps({**RPC, "result": {"tools": ROWS, "nextCursor": "2"}}))
    (dropped,) = read_catalogue(path).dropped
    assert "the answer has more pages (nextCursor)" in dropped.reason


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "Method not found"}},
            "holds an error of a server: Method not found",
        ),
        ({"tools": []}, "holds no usable tool (it is empty)"),
        ([1, 2], "holds no usable tool (tool 1: not a JSON object)"),
        ({"openapi": "3.1.0", "paths": {}}, "holds no usable tool (line 1: no name)"),
    ],
)
def test_a_file_without_tools_is_refused_in_words(tmp_path: Path, value: Any, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(value))
    with pytest.raises(BadInput) as refused:
        read_catalogue(path)
    assert message in str(refused.value)


def test_a_file_with_300_errors_is_read_and_they_are_counted_by_reason(tmp_path: Path) -> None:
    wrong: list[Callable[[int], str]] = [lambda n: "{", lambda n: json.dumps({"title": n}), lambda n: json.dumps([n])]
    path = tmp_path / "tools.jsonl"
    path.write_text(LINES + "\n".join(wrong[n % 3](n) for n in range(300)))
    catalogue = read_catalogue(path)
    assert len(catalogue.tools) == 5 and catalogue.unit == "line"
    assert {(each.reason, each.count, each.line) for each in catalogue.dropped} == {
        ("not JSON", 100, 6), ("no name", 100, 7), ("not a JSON object", 100, 8),
    }  # fmt: skip


def test_names_twice_cycles_of_references_and_2_000_tools_do_no_harm(tmp_path: Path) -> None:
    """Given two tools of one name, schemas that refer to themselves, and a tool called like Headrace's own, when 2,000 tools are read,
    then the second of a name is dropped with its place, and the others are clustered as usual."""
    cycle = {"type": "object", "properties": {"node": {"$ref": "#/$defs/node"}, "pet_id": {"type": "string"}},
             "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}}  # fmt: skip
    many = [{"name": f"get_pet_{n}", "description": f"number {n}", "inputSchema": cycle} for n in range(1_990)]
    twice = [{"name": "get_pet", "description": "another"}, {"name": "run_python", "description": "Runs a program.", "inputSchema": cycle}]
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"tools": [*ROWS, *many, *twice]}))
    catalogue = read_catalogue(path)
    assert len(catalogue.tools) == 1_996 and catalogue.unit == "tool"
    assert [(each.reason, each.line) for each in catalogue.dropped] == [("server has another tool of this name", 1_996)]
    assert all(cluster.world is None for cluster in cluster_tools(catalogue.tools))
    (last,) = [tool for tool in catalogue.tools if tool.name == "run_python"]
    assert json_types(last.parameters["properties"]["node"]) == frozenset(), "a reference says nothing of its type here"
