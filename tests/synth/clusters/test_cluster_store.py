"""Worlds that were made for the tools of a store's clusters: a stored one makes its cluster executable, and takes the tools' place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.errors import BadInput
from storage.store import Store
from synth.clusters.catalog import merge_tools
from synth.clusters.cluster_store import add_worlds, read_cluster, read_clusters, save_clusters
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.writing.cluster.skeleton_text import draft_cluster
from tests.synth.writing.cluster.clusters_of_pets import PETS, cluster_of

SPEC = draft_cluster(cluster_of(), PETS, Path("pet_shop.yaml"))


@pytest.fixture
def world() -> Iterator[str]:
    kind = compile_spec(parse_text(SPEC))
    WORLDS.register(kind)
    yield kind.name
    WORLDS.forget(kind.name)


def test_a_stored_world_makes_a_cluster_of_its_tools_executable(tmp_path: Path, world: str) -> None:
    store = Store(tmp_path)
    (built,) = save_clusters(store, PETS).clusters
    assert built.world is None and [each.world for each in read_clusters(store)] == [None]
    add_worlds(store, [world])
    assert [each.world for each in read_clusters(store)] == [world] == [read_cluster(store, built.id)[0].world]
    add_worlds(store, [world])
    assert store.query("SELECT count(*) FROM worlds").item() == 1


def test_a_build_with_the_world_has_its_tools_in_place_of_the_catalogues(tmp_path: Path, world: str) -> None:
    """Given a catalogue and a world made for its tools, when both are built, then no tool is there twice, whichever comes first."""
    tools = WORLDS[world].tools
    for order in ([*PETS, *tools], [*tools, *PETS]):
        merged = merge_tools(order)
        assert {tool.id for tool in merged} == {tool.id for tool in tools} and all(tool.world == world for tool in merged)
    saved = save_clusters(Store(tmp_path), merge_tools([*PETS, *tools]))
    assert {each.world for each in saved.clusters} == {world}


def test_two_worlds_for_the_same_tools_are_refused(world: str) -> None:
    other = compile_spec(parse_text(SPEC.replace("rows: 90", "rows: 80")))
    WORLDS.register(other)
    try:
        with pytest.raises(BadInput, match="two tools are called pet-shop-7"):
            merge_tools([*WORLDS[world].tools, *other.tools])
    finally:
        WORLDS.forget(other.name)
