"""The task to write a world for a cluster: what a language model is told, and how its answer is checked.

One idea: the writer of `spec_writer.py` asks, repairs and records; for a cluster it has another prompt (tools, edges, skeleton) and another
gate. The gate compares signatures after it has compiled the spec, and demands a plan that calls each tool. Whether the world is like
another one does not matter: its tools are given.

Not checked: whether the world does what the tools' descriptions say.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from storage.records import Message, Tool
from synth.clusters.business_clusters import Cluster
from synth.prompts import prompt
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.writing.cluster.skeleton_text import draft_cluster
from synth.writing.cluster.tool_signature import signature_differences
from synth.writing.spec_gate import GateResult, SpecGateConfig, check_tasks, first_problems, yaml_in

PROMPTS = ("spec_writer", "cluster_writer", "spec_writer_repair")
_DESCRIPTION, _SCHEMA = 400, 1500
"""Characters of a tool's description and schema in the prompt."""


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """A cluster whose world is to be written, with its tools."""

    cluster: Cluster
    tools: tuple[Tool, ...]

    def opening(self, starter: str) -> tuple[Message, ...]:
        """The first request. starter: the spec that shows the language.

        Raises:
            BadInput: no world can have these tools (`check_tools`).
        """
        system = prompt("spec_writer").messages(starter=starter, most_alike=0, about="", known=(), examples=())[0]
        language = (system.content or "").partition("# What it must be")[0]
        cluster = self.cluster
        edges = [f"{edge.source.partition('.')[2]} -> {edge.target.partition('.')[2]}: {edge.entity}" for edge in cluster.edges]
        values = {"cluster": cluster.id, "domain": cluster.domain, "tools": [_line(tool) for tool in self.tools], "edges": edges}
        return prompt("cluster_writer").messages(language=language, skeleton=draft_cluster(cluster, self.tools).strip(), **values)

    def check(self, answer: str, config: SpecGateConfig) -> GateResult:
        """Checks a model's answer: YAML, compiler, signatures, tasks."""
        text = yaml_in(answer)
        if text is None:
            return GateResult("no_yaml", ("there is no spec in the answer; give the whole file, in one block that begins with ```yaml",))
        try:
            world = compile_spec(parse_text(text))
        except SpecError as error:
            return GateResult("does_not_compile", first_problems(str(problem) for problem in error.problems), text)
        if differences := signature_differences(world.tools, self.tools):
            return GateResult("other_tools", first_problems(differences), text, world)
        lenient = config.model_copy(update={"least_intents": len(self.tools)})
        intents, problems = check_tasks(world, lenient)
        problems = problems or _unused_tools(world, self.tools)
        return GateResult("not_admitted" if problems else "kept", problems, text, world, intents)


def _line(tool: Tool) -> str:
    about = " ".join(tool.description.split())[:_DESCRIPTION]
    schema = json.dumps(tool.parameters, ensure_ascii=False)[:_SCHEMA] if tool.parameters else "unknown: give it what fits"
    return f"{tool.id}{' (changes)' if tool.changes_state else ''}: {about}\n  parameters: {schema}"


def _unused_tools(world: type[SpecWorld], tools: Sequence[Tool]) -> tuple[str, ...]:
    """A line for each tool that no plan of an intent calls."""
    called = set[str]()
    for intent in world.jobs():
        called |= {name for name, _ in intent.shape(frozenset(slot.name for slot in intent.slots)).calls}
    return tuple(
        f"no request leads to {tool.name}: give its entity a field that can be asked for or searched by, or let it show or find something"
        for tool in tools
        if tool.name not in called
    )
