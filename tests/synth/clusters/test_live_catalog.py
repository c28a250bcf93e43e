"""A live MCP server is asked for its tools: all pages, through the official SDK; what does not answer is said in words."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from storage.errors import BadInput
from synth.clusters.catalog import live_catalogue
from synth.clusters.live_catalog import live_tools

SERVER = """
import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import ListToolsResult, Tool

names = [f"get_pet_{n}" for n in range(25)]

async def list_tools(context, params):
    start = int(params.cursor) if params is not None and params.cursor else 0
    page = [Tool(name=name, description="Gets " + name, inputSchema={"type": "object", "properties": {"id": {"type": "string"}}})
            for name in names[start:start + 10]]
    return ListToolsResult(tools=page, next_cursor=str(start + 10) if start + 10 < len(names) else None)

async def main():
    server = Server("Pet Shop", on_list_tools=list_tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

anyio.run(main)
"""


def test_all_pages_of_a_server_are_read(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra `live` is not installed")
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    catalogue = live_catalogue(shlex.join([sys.executable, str(script)]))
    assert [tool.id for tool in catalogue.tools] == [f"pet-shop.get_pet_{n}" for n in range(25)]
    assert catalogue.tools[3].description == "Gets get_pet_3" and list(catalogue.tools[3].parameters["properties"]) == ["id"]


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ("/no/such/command --flag", "no such command"),
        (f"{shlex.quote(sys.executable)} -c 'print(1)'", "no MCP server answers there"),
        ("'unclosed", "cannot be read as a command"),
        (" ", "--server is empty"),
        ("http://127.0.0.1:9/mcp", "no MCP server answers there"),
    ],
)
def test_what_does_not_answer_is_said_in_words(server: str, message: str) -> None:
    pytest.importorskip("mcp", reason="the extra `live` is not installed")
    with pytest.raises(BadInput) as refused:
        live_tools(server)
    assert message in str(refused.value)


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.client.client", None)
    with pytest.raises(BadInput, match=r"pip install 'headrace\[live\]'"):
        live_tools("cat")
