"""A cluster of a small catalogue, for tests: a tool of every kind that skeletons know."""

from __future__ import annotations

from typing import Any

from storage.records import Tool
from synth.clusters.business_clusters import Cluster

SERVER = "pet-shop-7"


def tool(name: str, required: dict[str, Any] | None = None, optional: dict[str, Any] | None = None, *, changes: bool = False) -> Tool:
    """A tool with these parameters; without any its schema is unknown."""
    properties = {**(required or {}), **(optional or {})}
    schema = {"type": "object", "properties": properties, "required": list(required or {})} if required is not None else {}
    return Tool(name=name, description=f"It does {name}.", parameters=schema, server=SERVER, domain="Pets", changes_state=changes)


TEXT, TEXTS, COUNT = {"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "integer"}
KIND = {"type": "string", "enum": ["cat", "dog", "bird"]}
PETS = (
    tool("getPet", {"petId": TEXT}, {"verbose": {"type": "boolean"}}),
    tool("list-pets", {}, {"kind": KIND, "limit": COUNT}),
    tool("add_pet", {"name": TEXT, "kind": KIND, "toys": TEXTS, "options": {"type": "object"}}, {"age": COUNT}, changes=True),
    tool("rename_pet", {"pet_id": TEXT, "new_name": TEXT}, changes=True),
    tool("delete_pet", {"pet_ids": TEXTS}, changes=True),
    tool("get_pet_visits", {"pet_id": COUNT, "vet_id": TEXT}),
    tool("list_vets", {}),
)


def cluster_of(tools: tuple[Tool, ...] = PETS) -> Cluster:
    return Cluster("cluster-0123456789abcdef", "Pets", None, tuple(each.id for each in tools), (), 0)
