"""The setup of a synthesis run: worlds, tools, clusters and drills. It does not depend on the engines of the roles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

import polars as pl

from storage.errors import HeadraceError
from storage.record_rows import tasks_frame
from storage.records import CODE_TOOL, content_id
from storage.store import Store, part_id
from synth.blueprints import planner as planning
from synth.blueprints import single_goal as drilling
from synth.blueprints.conversation_template import intent_pool
from synth.clusters import business_clusters as clustering
from synth.clusters.business_clusters import Cluster, cluster_tools
from synth.clusters.catalog import merge_tools, read_catalogue
from synth.clusters.cluster_store import tools_frame, write_build
from synth.roles import simulate as simulation
from synth.run.config import SynthesisConfig
from synth.run.part_writer import PartWriter
from synth.tasks.split import STANDARD, DivisionConfig
from synth.worlds import WORLDS, admitted_names, run_python
from synth.worlds.stored_worlds import worlds_frame

VERSION = 5


class SynthesisSetup:
    """The worlds, tools, clusters and drills of a configuration.

    tools: of the worlds and the catalogue; they are clustered.
    code_domains: domains whose conversations may call `run_python`.
    code_share: share of their conversations that should call it; None if no sandbox works.
    versions: of code and data.
    parameters: the settings that calibration and drills depend on.
    notes: limits of the run, as texts.

    Raises:
        BadInput: the catalogue of tools cannot be used, or one of its tools has the name of another tool of its world.
    """

    def __init__(self, store: Store, config: SynthesisConfig, divisions: DivisionConfig = STANDARD) -> None:
        self.store, self.config, self.divisions = store, config, divisions
        catalogue = read_catalogue(config.tools).tools if config.tools is not None else ()
        worlds = admitted_names(config.worlds)
        tools = [*(tool for name in worlds for tool in WORLDS[name].tools), *catalogue]
        self.tools = merge_tools(tools)
        self.worlds = tuple(dict.fromkeys([*worlds, *sorted({tool.world for tool in catalogue if tool.world is not None})]))
        self.versions = {
            "synthesize": VERSION,
            "clusters": clustering.VERSION,
            "planner": planning.VERSION,
            "simulate": simulation.VERSION,
            "code_tool": run_python.VERSION,
            "worlds": {name: WORLDS[name].version for name in self.worlds},
            "tools": content_id("tools", [tool.model_dump(mode="json") for tool in self.tools]),
        }
        code_tools = [tool for name in self.worlds for tool in WORLDS[name].tools if tool.name == CODE_TOOL and config.code_share]
        self.code_domains = frozenset(tool.domain for tool in code_tools)
        problem = run_python.missing() if self.code_domains or config.programs else ""
        self._programs = {} if problem else config.programs
        self.code_share = config.code_share if self.code_domains and not problem else None
        self.notes: tuple[str, ...] = (f"run_python is not offered: no sandbox works here ({problem})",) if problem else ()
        self.notes += _language_notes(config, self.worlds)
        self.parameters = config.model_dump(mode="json", exclude={"tools", "roles", "patience"})
        self.parameters |= {"code_share": self.code_share or 0.0, "divisions": divisions.model_dump(mode="json")}
        self.writer = PartWriter(store, VERSION, self.versions)

    def write(self) -> None:
        """Writes the parts of the user's worlds, of tools, clusters and drills, unless the store has them. Does not commit them."""
        user_worlds = worlds_frame(self.worlds)
        for name, spec in user_worlds.select("world", "spec").iter_rows():
            id = part_id("worlds", [name], {"spec": spec}, VERSION)
            self.writer.find_or_write("worlds", id, partial(user_worlds.filter, pl.col("world") == name))
        self.writer.add(*write_build(self.store, self.tools, self.config.clusters, self.all_clusters))
        all_tools = [*self.tools, *(tool for name in self.worlds for tool in WORLDS[name].tools)]  # tasks offer these too
        tools = list({tool.id: tool for tool in all_tools}.values())
        self.writer.find_or_write("tools", self.writer.id("tools", [], {}), lambda: tools_frame(tools))
        for kind, counts in (("drills", self.config.drills), ("programs", self._programs)):
            for world, count in counts.items():
                self._write_drills(kind, world, count)

    @cached_property
    def all_clusters(self) -> list[Cluster]:
        return cluster_tools(self.tools, self.config.clusters)

    @cached_property
    def clusters(self) -> list[Cluster]:
        """The clusters that a world executes."""
        return [cluster for cluster in self.all_clusters if cluster.world is not None]

    @cached_property
    def by_domain(self) -> dict[str, list[Cluster]]:
        """Domain -> clusters whose tools can serve one of its intents.

        Raises:
            HeadraceError: no cluster serves an intent.
        """
        clusters_of: dict[str, list[Cluster]] = {}
        for cluster in self.clusters:
            assert cluster.world is not None
            for intent in intent_pool(WORLDS[cluster.world], cluster.tool_names).busy:
                clusters = clusters_of.setdefault(WORLDS[cluster.world].intents[intent].domain, [])
                if cluster not in clusters:
                    clusters.append(cluster)
        if not clusters_of:
            raise HeadraceError("no cluster of tools can serve any intent; lower clusters.edge_threshold or clusters.growth_floor")
        return clusters_of

    @property
    def domain_weights(self) -> dict[str, float]:
        """Domain -> the greatest weight of a world that serves it, source weights by world included."""
        weights, of_source = self.config.world_weights, self.config.source_weights

        def weight(world: str) -> float:
            return weights.get(world, 1.0) * (of_source.weight(world) if of_source and of_source.by == "world" else 1.0)

        return {domain: max(weight(one.world or "") for one in clusters) for domain, clusters in self.by_domain.items()}

    def _write_drills(self, kind: str, world: str, count: int) -> None:
        """Writes the blueprints and tasks of a world's drills, unless the store has them. kind: `drills`, or `programs` for drills that
        need a program."""
        parameters = {"world": world, "config": self.parameters, "version": drilling.VERSION}
        blueprints, tasks = (self.writer.id(table, [kind], parameters) for table in ("blueprints", "tasks"))
        parts = [part for id in (blueprints, tasks) if (part := self.store.find(id)) is not None]
        if len(parts) < 2:
            drills = drilling.draw_drills(
                WORLDS[world], count, self.clusters, self.divisions, seed=self.config.seed, programs=kind == "programs"
            )
            parts = [
                self.store.write("blueprints", blueprints, drilling.drill_rows(drills)),
                self.store.write("tasks", tasks, tasks_frame([drill.task for drill in drills])),
            ]
        self.writer.add(*parts)


def _language_notes(config: SynthesisConfig, worlds: Sequence[str]) -> tuple[str, ...]:
    """What to say where a share of Chinese is set that no world of the run allows."""
    if config.chinese_share == SynthesisConfig.model_fields["chinese_share"].default:
        return ()
    spoken = {language for name in worlds for language in WORLDS[name].languages}
    if config.chinese_share > 0 and "zh" not in spoken:
        return (
            f"every conversation is in English, though synthesize.chinese_share is {config.chinese_share}: no chosen world speaks Chinese",
        )
    if config.chinese_share < 1 and "en" not in spoken:
        return (
            f"every conversation is in Chinese, though synthesize.chinese_share is {config.chinese_share}: no chosen world speaks English",
        )
    return ()
