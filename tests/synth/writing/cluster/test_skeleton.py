"""Skeletons of cluster worlds: they compile, have exactly the cluster's tools, and mark what is guessed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import BadInput
from storage.records import Tool
from synth.clusters.business_clusters import cluster_tools
from synth.clusters.catalog import read_catalogue
from synth.tasks.assessment import assess
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.writing.cluster.names import usable_key
from synth.writing.cluster.skeleton import build_skeleton
from synth.writing.cluster.skeleton_text import draft_cluster
from synth.writing.cluster.tool_signature import signature_differences
from tests.synth.writing.cluster.clusters_of_pets import PETS, SERVER, TEXT, cluster_of, tool


def test_a_skeleton_compiles_to_a_world_of_exactly_the_clusters_tools() -> None:
    text = draft_cluster(cluster_of(), PETS, Path("pets.yaml"))
    world = compile_spec(parse_text(text))
    assert signature_differences(world.tools, PETS) == []
    assert text.startswith("# Drafted from cluster-0123456789abcdef") and text.count("# ?") > 10
    assert {each.id for each in PETS} <= {each.id for each in world.tools}
    assert assess(world, 60, seed=0).share > 0.9


def test_entities_and_states_come_from_names_and_parameters() -> None:
    skeleton = build_skeleton(cluster_of(), PETS)
    forms = {plan.tool.name: plan for plan in skeleton.tools}
    assert {"pet", "vet"} <= skeleton.entities.keys()
    assert (forms["getPet"].form, forms["list-pets"].form) == ("get", "search")
    assert forms["getPet"].takes == {"petId": "pet", "verbose": {"unused": "boolean"}}
    assert forms["list-pets"].takes == {"kind": "kind", "limit": "limit"}
    assert forms["delete_pet"].action["sets"] == {"pet.state": "removed"}
    assert forms["delete_pet"].takes == {"pet_ids": {"argument": "pet", "type": "array"}}
    assert forms["rename_pet"].action["sets"] == {"pet.new_name": "new_name"}
    assert "pet" in forms["add_pet"].action["creates"] and "finds" in forms["list_vets"].action  # type: ignore[operator]
    assert forms["get_pet_visits"].takes["pet_id"] == {"argument": "pet", "type": "integer"}
    assert skeleton.entities["pet"].states == ["removed"]


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ((*PETS, tool("run_python", {"code": TEXT})), "has a tool called run_python, as Headrace's own for programs"),
        ((*PETS, PETS[0].model_copy(update={"server": "other"})), "has several tools called getPet"),
    ],
)
def test_tools_that_no_world_can_have_are_refused_in_words(tools: tuple[Tool, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        draft_cluster(cluster_of(tools), tools)


NAMES = st.lists(st.from_regex(r"[a-zA-Z]{1,8}([_-][a-zA-Z0-9]{1,8}){0,3}", fullmatch=True), min_size=1, max_size=4, unique=True)
TYPES = st.sampled_from(["string", "integer", "number", "array", "object", "boolean", None])


@given(names=NAMES, parameters=st.dictionaries(st.text("abcdefgid_", min_size=1, max_size=9), TYPES, max_size=4), changes=st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_cluster_gives_a_spec_that_can_be_read(names: list[str], parameters: dict[str, str | None], changes: bool) -> None:
    """Whatever tools are called and take, the skeleton is YAML that the language reads; what does not fit together is told as for any
    spec, and a world that compiles has no other tools."""
    schema = {key: {} if kind is None else {"type": kind} for key, kind in parameters.items()}
    tools = tuple(tool(name, schema, changes=changes) for name in names)
    try:
        world = compile_spec(parse_text(draft_cluster(cluster_of(tools), tools)))
    except SpecError as refused:
        assert not re.search("not valid YAML|unknown key|no tool ", str(refused))
    else:
        assert {each.name for each in world.tools} == {*names, "run_python"} and all(each.server == SERVER for each in world.tools[:-1])


def test_names_become_keys() -> None:
    assert [usable_key(text, "x") for text in ("Form", "from", "3d", "", "today", "a__b_", "日志")] == [
        "form", "from_one", "n3d", "x", "today_one", "a_b", "x",
    ]  # fmt: skip


@pytest.mark.slow
def test_most_clusters_of_the_public_catalogue_compile_as_they_are(test_data: Path) -> None:
    tools = read_catalogue(test_data / "mcp_tools_toucan.jsonl.gz").tools
    by_id = {each.id: each for each in tools}
    sized = [each for each in cluster_tools(tools) if 4 <= len(each.tool_ids) <= 8][::25]
    same = 0
    for cluster in sized:
        members = [by_id[each] for each in cluster.tool_ids]
        try:
            world = compile_spec(parse_text(draft_cluster(cluster, members)))
        except SpecError:
            continue
        same += not signature_differences(world.tools, members)
    assert same >= 0.95 * len(sized)
