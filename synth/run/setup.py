"""What a run of synthesis stands on: worlds and tools, the clusters that they form, and drills; the same whoever plays the roles."""

from __future__ import annotations

from functools import cached_property

import polars as pl

from storage.errors import HeadraceError
from storage.record_rows import tasks_frame
from storage.records import CODE_TOOL, Tool, content_id
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
from synth.run.part_writer import Ledger
from synth.tasks.split import STANDARD, DivisionConfig
from synth.worlds import WORLDS, admitted_names, run_python
from synth.worlds.stored_worlds import worlds_frame

VERSION = 4


class SynthesisSetup:
    """tools: of the worlds and the catalogue, which are clustered. coding: domains whose conversations may compute; code_share: how many of
    them are to, None where nothing can be run. parameters: of the configuration, those that decide it. notes: what has to be done without.

    Raises:
        BadInput: the catalogue of tools cannot be used, or one of its tools is called like another of a world.
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
        codes = [tool for name in self.worlds for tool in WORLDS[name].tools if tool.name == CODE_TOOL and config.code_share]
        self.coding = frozenset(tool.domain for tool in codes)
        lacks = run_python.missing() if self.coding or config.programs else ""
        self._programs = {} if lacks else config.programs
        self.code_share = config.code_share if self.coding and not lacks else None
        self.notes: tuple[str, ...] = (f"run_python is not offered: no sandbox works here ({lacks})",) if lacks else ()
        self.parameters = config.model_dump(mode="json", exclude={"tools", "roles"})
        self.parameters |= {"code_share": self.code_share or 0.0, "divisions": divisions.model_dump(mode="json")}
        self.ledger = Ledger(store, VERSION, self.versions)

    def lay(self) -> None:
        """Worlds of the user's own, tools, clusters and drills become parts."""
        self._keep_worlds()
        self.ledger.keep(*write_build(self.store, self.tools, self.config.clusters, self.all_clusters))
        self.ledger.kept("tools", self.ledger.id("tools", [], {}), lambda: tools_frame(self._known_tools()))
        self._drill()

    @cached_property
    def all_clusters(self) -> list[Cluster]:
        return cluster_tools(self.tools, self.config.clusters)

    @cached_property
    def clusters(self) -> list[Cluster]:
        """Those that a world executes."""
        return [cluster for cluster in self.all_clusters if cluster.world is not None]

    @cached_property
    def by_domain(self) -> dict[str, list[Cluster]]:
        """Domain -> clusters whose tools can serve one of its intents.

        Raises:
            HeadraceError: there is none.
        """
        by_domain: dict[str, list[Cluster]] = {}
        for cluster in self.clusters:
            assert cluster.world is not None
            for intent in intent_pool(WORLDS[cluster.world], cluster.tool_names).busy:
                served = by_domain.setdefault(WORLDS[cluster.world].intents[intent].domain, [])
                if cluster not in served:
                    served.append(cluster)
        if not by_domain:
            raise HeadraceError("no cluster of tools can serve any intent; lower clusters.edge_threshold or clusters.growth_floor")
        return by_domain

    def _known_tools(self) -> list[Tool]:
        """The tools that are clustered, and all others of their worlds: tasks are shown with these too."""
        tools = [*self.tools, *(tool for name in self.worlds for tool in WORLDS[name].tools)]
        return list({tool.id: tool for tool in tools}.values())

    def _keep_worlds(self) -> None:
        """The specs of worlds of the user's own."""
        frame = worlds_frame(self.worlds)
        for name, spec in frame.select("world", "spec").iter_rows():
            part = part_id("worlds", [name], {"spec": spec}, VERSION)
            self.ledger.keep(self.store.find(part) or self.store.write("worlds", part, frame.filter(pl.col("world") == name)))

    def _drill(self) -> None:
        """Drills of every drill world, without and, where one can be run, with programs: their blueprints and tasks."""
        sections = [("drills", *each) for each in self.config.drills.items()] + [("programs", *each) for each in self._programs.items()]
        for kind, world, count in sections:
            about = {"world": world, "config": self.parameters, "version": drilling.VERSION}
            blueprints, tasks = self.ledger.id("blueprints", [kind], about), self.ledger.id("tasks", [kind], about)
            parts = self.store.find(blueprints), self.store.find(tasks)
            if not all(parts):
                drills = drilling.draw_drills(
                    WORLDS[world], count, self.clusters, self.divisions, seed=self.config.seed, programs=kind == "programs"
                )
                parts = (
                    self.store.write("blueprints", blueprints, drilling.drill_rows(drills)),
                    self.store.write("tasks", tasks, tasks_frame([drill.task for drill in drills])),
                )
            self.ledger.keep(*parts)
