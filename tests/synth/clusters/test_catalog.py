"""Catalogue files: three forms, broken schemas, equal names, words of web pages, unreadable files."""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import BadInput
from synth.clusters.catalog import Catalogue, clean_schema, merge_tools, read_catalogue, server_key
from synth.worlds import WORLDS

SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}


def write(folder: Path, *rows: Any, name: str = "tools.jsonl") -> Path:
    path = folder / name
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8")
    return path


def read(folder: Path, *rows: Any) -> Catalogue:
    return read_catalogue(write(folder, *rows))


@pytest.mark.parametrize(
    "row",
    [
        {"type": "function", "function": {"name": "get_order", "description": "Shows an order.", "parameters": SCHEMA}},
        {"name": "get_order", "description": "Shows an order.", "parameters": SCHEMA},
        {"name": "get_order", "description": "Shows an order.", "inputSchema": SCHEMA},
        {"name": "get_order", "description": "Shows an order.", "input_schema": SCHEMA},
        {"name": " get_order ", "description": "Shows an order.", "inputSchema": json.dumps(SCHEMA)},
    ],
)
def test_openai_and_mcp_forms_give_the_same_tool(tmp_path: Path, row: dict[str, Any]) -> None:
    (tool,) = read(tmp_path, row).tools

    assert (tool.id, tool.description, tool.parameters) == ("tools.get_order", "Shows an order.", SCHEMA)
    assert (tool.world, tool.changes_state) == (None, False)


def test_outputs_annotations_and_labels_are_read(tmp_path: Path) -> None:
    output = {"type": "object", "properties": {"status": {"type": "string"}}}
    row = {"name": "get_it", "server": "My Shop", "server_id": 7, "label": "E-commerce", "outputSchema": output}

    (tool,) = read(tmp_path, row | {"annotations": {"readOnlyHint": False}}).tools

    assert (tool.server, tool.domain, tool.output, tool.changes_state) == ("my-shop-7", "E-commerce", output, True)
    assert read(tmp_path, {"name": "delete_it"}).tools[0].changes_state
    assert not read(tmp_path, {"name": "list_it"}).tools[0].changes_state


def test_a_row_with_a_world_gives_the_worlds_tool(tmp_path: Path) -> None:
    rows = [{"name": tool.name, "world": "retail"} for tool in WORLDS["retail"].tools]

    assert read(tmp_path, *rows).tools == WORLDS["retail"].tools
    with pytest.raises(BadInput, match=r"tools.jsonl:1: world: no world is called 'retial'; did you mean 'retail'\?"):
        read(tmp_path, {"name": "buy", "world": "retial"})
    with pytest.raises(BadInput, match=r"tools.jsonl:2: world retail has no tool 'sell'; it has search_products, "):
        read(tmp_path, {"name": "buy", "world": "retail"}, {"name": "sell", "world": "retail"})


def test_equal_names_of_servers_do_not_collide(tmp_path: Path) -> None:
    catalogue = read(tmp_path, *({"name": "search", "description": f"Of {i}.", "server": "GitHub", "server_id": i} for i in range(3)))

    assert [tool.id for tool in catalogue.tools] == ["github-0.search", "github-1.search", "github-2.search"]


def test_exact_copies_are_dropped_unless_they_have_no_content(tmp_path: Path) -> None:
    described = [{"name": "search", "description": "Searches.", "server": name} for name in "abc"]
    empty = [{"name": "search", "server": name} for name in "de"]

    catalogue = read(tmp_path, *described, *empty)

    assert [tool.server for tool in catalogue.tools] == ["a", "d", "e"]
    assert (catalogue.rows, catalogue.copies, catalogue.unknown) == (5, 2, 3)


def test_equal_tools_of_one_id_are_merged_and_different_ones_refused(tmp_path: Path) -> None:
    world_tools = WORLDS["retail"].tools
    (other,) = read(tmp_path, {"name": "buy", "server": "shop", "label": "Pets"}).tools

    assert merge_tools([*world_tools, *world_tools]) == world_tools
    with pytest.raises(BadInput, match=r"two tools are called shop\.buy: one of world retail, one of a catalogue \(Pets\)"):
        merge_tools([*world_tools, other])


def test_bad_rows_are_dropped_with_their_reason_and_line(tmp_path: Path) -> None:
    path = write(
        tmp_path, {"name": "a"}, "{", "[1]", {"name": " "}, {"description": "x"}, {"name": "n" * 300}, {"name": "Optional Settings"}
    )
    with path.open("ab") as file:
        file.write(b'{"name": "\xff"}\n\n' + json.dumps({"name": "a", "description": "Another."}).encode())

    catalogue = read_catalogue(path)

    assert [tool.name for tool in catalogue.tools] == ["a"]
    assert {(dropped.reason, dropped.count, dropped.line) for dropped in catalogue.dropped} == {
        ("not JSON", 1, 2),
        ("not a JSON object", 1, 3),
        ("no name", 2, 4),
        ("name longer than 256 characters", 1, 6),
        ("part of a page, not a tool", 1, 7),
        ("not UTF-8", 1, 8),
        ("server has another tool of this name", 1, 10),
    }
    assert catalogue.rows == len(catalogue.tools) + catalogue.copies + sum(dropped.count for dropped in catalogue.dropped)


def test_texts_that_no_store_can_hold_are_cleaned_or_dropped(tmp_path: Path) -> None:
    half = '{"name": "a\\ud800", "description": "b \\uDFFF", "inputSchema": {"properties": {"c\\ud800": {}}}}'
    deep = '{"name": "deep", "inputSchema": ' + '{"items": ' * 80 + "{}" + "}" * 81

    catalogue = read(tmp_path, half, deep, {"name": "bell\x07"}, {"name": "escape\x1b[31m"})

    (tool,) = catalogue.tools
    assert (tool.name, tool.description, list(tool.parameters["properties"])) == ("a?", "b ?", ["c?"])
    assert [(dropped.reason, dropped.count) for dropped in catalogue.dropped] == [
        ("name with control characters", 2),
        ("nested deeper than 64 levels", 1),
    ]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [((), "it is empty"), (("[", "]"), "it is empty"), (({"title": "x"},), "line 1: no name"), (("\x00",), "not JSON")],
)
def test_a_file_without_a_tool_is_refused_with_the_reason_and_a_hint(tmp_path: Path, rows: tuple[Any, ...], reason: str) -> None:
    path = write(tmp_path, *rows)

    with pytest.raises(BadInput, match="holds no usable tool") as refusal:
        read_catalogue(path)
    assert reason in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert "one JSON object a line" in str(refusal.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    broken = tmp_path / "cut.jsonl.gz"
    broken.write_bytes(gzip.compress(b'{"name": "a"}\n' * 1000)[:-20])

    spoilt = tmp_path / "spoilt.jsonl.gz"
    data = bytearray(gzip.compress(b"".join(b'{"name": "a%d"}\n' % n for n in range(5000))))
    data[len(data) // 2 : len(data) // 2 + 8] = b"\xff" * 8
    spoilt.write_bytes(data)

    for path in (tmp_path / "none.jsonl", tmp_path, broken, spoilt):
        with pytest.raises(BadInput, match="cannot be read"):
            read_catalogue(path)


def test_compressed_files_are_known_by_their_content(tmp_path: Path) -> None:
    path = tmp_path / "tools.txt"
    path.write_bytes(gzip.compress(json.dumps({"name": "a"}).encode()))

    assert [tool.id for tool in read_catalogue(path).tools] == ["tools.a"]


# ---- schemas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, {}),
        ([], {}),
        ({}, {}),
        ("text", {}),
        (7, {}),
        ({"$ref": "#/x"}, {}),
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({"type": "object", "properties": {}}, {"type": "object", "properties": {}}),
        ({"type": "dict", "properties": {"a": {"type": "string"}}}, {"type": "object", "properties": {"a": {"type": "string"}}}),
        ({"properties": {"a": True, "b": "string", "c": "of what", "d": None}}, None),
        ({"a": {"type": "string"}}, {"type": "object", "properties": {"a": {"type": "string"}}}),
        ({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, None),
        ({"properties": {"a": {}}, "required": ["a", "z", 3]}, {"type": "object", "properties": {"a": {}}, "required": ["a"]}),
        ({"properties": {"a": {}}, "required": True}, {"type": "object", "properties": {"a": {}}}),
    ],
)
def test_schemas_of_every_kind_become_objects_or_nothing(schema: Any, expected: dict[str, Any] | None) -> None:
    cleaned = clean_schema(schema)

    assert expected is None or cleaned == expected
    assert cleaned == {} or all(isinstance(item, dict) for item in cleaned["properties"].values())


def test_crawled_parameters_lose_the_words_of_the_page() -> None:
    crawled = [{"name": name, "required": False, "type": "string"} for name in ("get_it", "Add", "FastMCP", "chat_id", "pageSize", "query")]

    cleaned = clean_schema([*crawled, {"name": "Title", "required": True}], "get_it", {"query": 2, "Add": 1})

    assert list(cleaned["properties"]) == ["chat_id", "pageSize", "query", "Title"]
    assert cleaned["required"] == ["Title"]
    assert clean_schema(crawled[:1], "get_it") == {}


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "properties", "required", "items", "name", "anyOf", "allOf", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSONS)
def test_any_json_value_gives_a_clean_schema(schema: Any) -> None:
    cleaned = clean_schema(schema, "tool", {})

    assert cleaned == {} or (cleaned["type"] == "object" and all(isinstance(item, dict) for item in cleaned["properties"].values()))
    assert set(cleaned.get("required", ())) <= set(cleaned.get("properties", ()))
    assert clean_schema(cleaned, "tool", {}) == cleaned, "a clean schema stays"


@given(st.text(), st.none() | st.text() | st.integers() | st.floats() | st.booleans())
def test_a_server_key_holds_no_dot(name: str, number: Any) -> None:
    assert "." not in server_key(name, number)
    assert server_key(name, number)


@given(st.text(), st.text(), st.text())
def test_control_characters_of_terminals_are_removed(server: str, label: str, text: str) -> None:
    schema = {"properties": {"a\x1b[2J": {"description": text}}}
    row = {"name": "a", "server": server, "label": label, "description": text + "\x1b]0;x\x07", "inputSchema": schema}
    with tempfile.TemporaryDirectory() as folder:
        (tool,) = read(Path(folder), row).tools

    for field in (tool.server, tool.domain, tool.description, *tool.parameters["properties"]):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", field)
    assert "\n" not in tool.domain


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_rows_with_numbers_that_json_does_not_allow_are_dropped_with_their_line(tmp_path: Path, number: str) -> None:
    odd = f'{{"name": "b", "inputSchema": {{"properties": {{"x": {{"maximum": {number}}}}}}}}}'

    catalogue = read(tmp_path, {"name": "a"}, odd)

    assert [(dropped.reason, dropped.line) for dropped in catalogue.dropped] == [(f"contains {number}, which JSON does not allow", 2)]
    assert clean_schema(f'{{"properties": {{"x": {number}}}}}') == {}


def test_the_real_catalogue(test_data: Path) -> None:
    path = test_data / "mcp_tools_toucan.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    catalogue = read_catalogue(path)

    assert catalogue.rows == 17_578
    assert catalogue.rows == len(catalogue.tools) + catalogue.copies + sum(dropped.count for dropped in catalogue.dropped)
    assert len({tool.id for tool in catalogue.tools}) == len(catalogue.tools)
    assert not any("Try in Playground" in tool.description[:200] for tool in catalogue.tools)
