"""Signatures of a world's tools against those of a cluster: every difference is named, and what a catalogue does not say fits anything."""

from __future__ import annotations

from typing import Any

import pytest

from storage.records import CODE_TOOL
from synth.writing.cluster.tool_signature import json_types, signature_differences
from tests.synth.writing.cluster.clusters_of_pets import COUNT, TEXT, tool

GIVEN = (tool("get_pet", {"pet_id": TEXT}, {"limit": {"type": ["number", "null"]}}), tool("feed_pet"))


def test_equal_signatures_do_not_differ_and_our_own_tool_does_not_count() -> None:
    assert signature_differences((*GIVEN, tool(CODE_TOOL, {"code": TEXT})), GIVEN) == []
    assert signature_differences((GIVEN[0], tool("feed_pet", {"pet": TEXT}, changes=True)), GIVEN) == [], "its parameters are unknown"
    narrower = tool("get_pet", {"pet_id": TEXT}, {"limit": COUNT})
    assert signature_differences((narrower, GIVEN[1]), GIVEN) == [], "an integer is a number"


@pytest.mark.parametrize(
    ("here", "line"),
    [
        (tool("get_pets", {"pet_id": TEXT}, {"limit": COUNT}), "there is no tool pet-shop-7.get_pet"),
        (tool("get_pet", {"pet_id": TEXT}), "takes limit too"),
        (tool("get_pet", {"pet_id": TEXT}, {"limit": COUNT, "page": COUNT}), "takes no page"),
        (tool("get_pet", {}, {"pet_id": TEXT, "limit": COUNT}), "pet_id is required in the catalogue"),
        (tool("get_pet", {"pet_id": TEXT, "limit": COUNT}), "limit is optional in the catalogue"),
        (tool("get_pet", {"pet_id": COUNT}, {"limit": COUNT}), "pet_id is string in the catalogue, and integer here"),
        (tool("get_pet", {"pet_id": TEXT}, {"limit": COUNT}).model_copy(update={"server": "x"}), "its server is 'x' here"),
    ],
)
def test_a_difference_is_named(here: Any, line: str) -> None:
    assert any(line in each for each in signature_differences((here, GIVEN[1]), GIVEN))


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({}, set()),
        ({"type": "string"}, {"string"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"string"}),
        ({"oneOf": [{"type": "integer"}, {"anyOf": [{"type": "array"}]}]}, {"integer", "array"}),
        ({"enum": ["a", "b"]}, {"string"}),
        ({"$ref": "#/$defs/x"}, set()),
    ],
)
def test_types_of_a_schema(schema: Any, types: set[str]) -> None:
    assert json_types(schema) == types
