"""Figures of catalogues and of worlds for their clusters.

- `catalogue_forms_read`: of six forms of one catalogue (JSONL, gzipped JSONL, `{"tools": [...]}`, a JSON-RPC answer, an OpenAI list, a live
  MCP server) those that give the same tools. The live server is a process that speaks MCP through the official SDK; where that is not
  installed, the form counts as not read.
- `cluster_worlds_compiled`: of 20 clusters of the public catalogue those for which `write_specs` keeps a world, with recorded answers in
  place of a model: the spec compiles, its tools are the cluster's, 95 % of its intents are admitted, and a plan calls each tool. An answer
  may be repaired four times, as a model's (`cluster_answers/README.md` says who wrote them).

The clusters are the first 20 with 4 to 8 tools by the hash of their tools' ids, none left out. The answers were written for these, by
one who saw the messages of the compiler, as a model would: the figure measures the way, not a model.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Deadline, fail
from storage.errors import BadInput
from storage.records import Message, Tool, canonical_json
from synth.clusters.business_clusters import Cluster, cluster_tools
from synth.clusters.catalog import live_catalogue, read_catalogue
from synth.engines.base import ChatAnswer, ChatRequest
from synth.writing.cluster.cluster_task import ClusterTask
from synth.writing.spec_writer import SpecWriterConfig, write_specs

KEYS = ("catalogue_forms_read", "cluster_worlds_compiled")
ANSWERS = ROOT / "benchmarks" / "live_sections" / "cluster_answers"
CLUSTERS, SIZES = 20, range(4, 9)
_TOOLS = 40
"""Tools of the catalogue that is written in six forms."""
_SERVER = """
import anyio, json
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import ListToolsResult, Tool

tools = [Tool(**row) for row in json.loads({rows!r})]

async def list_tools(context, params):
    start = int(params.cursor) if params is not None and params.cursor else 0
    end = start + {page}
    return ListToolsResult(tools=tools[start:end], next_cursor=str(end) if end < len(tools) else None)

async def main():
    server = Server("catalogue", on_list_tools=list_tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

anyio.run(main)
"""
"""An MCP server that gives its tools in pages."""
_PAGE = 15


class RecordedWriter:
    """Gives the recorded answers for a cluster in turn, and the last one again."""

    name = "recorded"

    def __init__(self, answers: Sequence[str]) -> None:
        self.answers, self.asked = answers, 0

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        texts = [self.answers[min(self.asked + at, len(self.answers) - 1)] for at in range(len(requests))]
        self.asked += len(requests)
        return [ChatAnswer(Message(role="assistant", content=f"```yaml\n{text}```"), "stop") for text in texts]


def cluster_figures(deadline: Deadline) -> Mapping[str, float]:
    """The figures of this section."""
    deadline.allows(4)
    tools = read_catalogue(catalogue_file()).tools
    forms = forms_read(tools[:_TOOLS])
    outcomes = Counter(outcome for _, outcome, _ in written_worlds(tools))
    print(f"    forms read: {', '.join(forms)}; worlds: {dict(outcomes)}", flush=True)
    return {"catalogue_forms_read": len(forms), "cluster_worlds_compiled": outcomes["kept"]}


def catalogue_file() -> Path:
    """The public catalogue, in the folder that HEADRACE_TEST_DATA names."""
    path = Path(os.environ.get("HEADRACE_TEST_DATA", "")) / "mcp_tools_toucan.jsonl.gz"
    if not path.is_file():
        fail("no mcp_tools_toucan.jsonl.gz: name the folder that holds it in HEADRACE_TEST_DATA")
    return path


# ---- worlds -----------------------------------------------------------------------------------------------------------------------


def key_of(cluster: Cluster) -> str:
    """A hash of a cluster's tools, by which clusters are drawn and answers filed. It does not change with the build."""
    return hashlib.sha256("\n".join(sorted(cluster.tool_ids)).encode()).hexdigest()


def drawn_clusters(tools: Sequence[Tool]) -> list[ClusterTask]:
    by_id = {tool.id: tool for tool in tools}
    sized = sorted((each for each in cluster_tools(tools) if len(each.tool_ids) in SIZES), key=key_of)
    return [ClusterTask(each, tuple(by_id[tool] for tool in each.tool_ids)) for each in sized[:CLUSTERS]]


def recorded_answers(cluster: Cluster) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(ANSWERS.glob(f"{key_of(cluster)[:12]}.*.yaml"))]


def written_worlds(tools: Sequence[Tool]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Cluster, outcome of the writer and problems, for each drawn cluster."""
    results = []
    for task in drawn_clusters(tools):
        answers = recorded_answers(task.cluster)
        if not answers:
            results.append((task.cluster.id, "no_answer", ()))
            continue
        with tempfile.TemporaryDirectory() as folder:
            config = SpecWriterConfig(attempts_per_spec=1)
            (attempt,) = write_specs(RecordedWriter(answers), Path(folder), 1, cluster=task, config=config).folder.attempts
            results.append((task.cluster.id, str(attempt.outcome), attempt.problems))
    return results


# ---- forms ------------------------------------------------------------------------------------------------------------------------


def forms_read(tools: Sequence[Tool]) -> list[str]:
    """The forms in which a catalogue gives the same tools."""
    rows = [_row(tool, number) for number, tool in enumerate(tools)]
    wanted = [(row["name"], row["description"], row["inputSchema"]) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        sources = _sources(rows, Path(folder))
        return [form for form, read in sources.items() if _gives(read, wanted)]


def _row(tool: Tool, number: int) -> dict[str, Any]:
    schema = tool.parameters or {"type": "object", "properties": {}}
    return {"name": f"{tool.name}_{number}", "description": tool.description or tool.name, "inputSchema": dict(schema)}


def _gives(read: Callable[[], Any], wanted: Sequence[tuple[str, str, Any]]) -> bool:
    try:
        found = read().tools
    except BadInput as problem:
        print(f"    {problem}", flush=True)
        return False
    return [(tool.name, tool.description, _plain(tool.parameters)) for tool in found] == [
        (name, about.strip(), _plain(schema)) for name, about, schema in wanted
    ]


def _plain(schema: Mapping[str, Any]) -> Any:
    """The schema as JSON, whatever the order of its keys."""
    return canonical_json(schema)


def _sources(rows: list[dict[str, Any]], folder: Path) -> dict[str, Callable[[], Any]]:
    openai = [
        {"type": "function", "function": {"name": row["name"], "description": row["description"], "parameters": row["inputSchema"]}}
        for row in rows
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    texts = {
        "jsonl": lines,
        "tools": json.dumps({"tools": rows}, indent=1),
        "json_rpc": json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": rows}}),
        "openai": json.dumps(openai, indent=1),
    }
    paths = {form: folder / f"{form}.json" for form in (*texts, "jsonl_gz")}
    for form, text in texts.items():
        paths[form].write_text(text, encoding="utf-8")
    paths["jsonl_gz"].write_bytes(gzip.compress(lines.encode()))
    server = folder / "server.py"
    server.write_text(_SERVER.format(rows=json.dumps(rows), page=_PAGE), encoding="utf-8")
    command = shlex.join([sys.executable, str(server)])
    read: dict[str, Callable[[], Any]] = {form: _reader(path) for form, path in paths.items()}
    return {**read, "live": lambda: live_catalogue(command)}


def _reader(path: Path) -> Callable[[], Any]:
    return lambda: read_catalogue(path)
