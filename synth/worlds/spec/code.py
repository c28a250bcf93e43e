"""Spec worlds that offer the code tool besides their own: `banking+code`.

One idea: such a world is the plain one with `run_python` (`synth/code_tool.py`) among its tools and the jobs that need it among its
intents; its state and all else are the same. One sandbox session serves all worlds of a process; what a snippet gave is remembered.
Where this machine has no sandbox there are no such worlds.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import ClassVar

from storage.errors import BadInput
from storage.records import JSON
from synth.code_tool import TOOL, CodeTool
from synth.sandbox import Sandbox, pick
from synth.tool_cache import ToolCache
from synth.worlds import WITH_CODE
from synth.worlds.base import Observation, World
from synth.worlds.spec.admission import tried
from synth.worlds.spec.compile import CACHED
from synth.worlds.spec.domain import Domain
from synth.worlds.spec.intents import searched_name
from synth.worlds.spec.intents.computing import Computing, computable
from synth.worlds.spec.intents.finders import ById, ByName
from synth.worlds.spec.wording import Wording
from synth.worlds.spec.world import SpecWorld


class CodingWorld(SpecWorld):
    code: ClassVar[CodeTool]

    def call(self, tool: str, arguments: str | Mapping[str, JSON]) -> Observation:
        """As `SpecWorld.call`; raises SandboxError where `run_python` is called and the sandbox, not the snippet, has failed."""
        return self.code.call(arguments) if tool == TOOL.name else super().call(tool, arguments)


@cache
def _code_tool() -> CodeTool:
    provider = pick()
    if provider is None:
        raise BadInput(f"worlds called ...{WITH_CODE} need a sandbox, and this machine has none: `headrace doctor` says what is missing")
    sandbox = Sandbox(provider)
    atexit.register(sandbox.close)
    return CodeTool(sandbox, ToolCache())


@lru_cache(maxsize=CACHED)
def with_code(world: type[World]) -> type[SpecWorld]:
    """The world with the code tool.

    Raises:
        KeyError: it is no spec world.
        BadInput: this machine has no sandbox.
    """
    if not issubclass(world, SpecWorld):
        raise KeyError(world.name + WITH_CODE)
    domain, name = world.domain, world.name + WITH_CODE
    found = computing_intents(domain)
    refused = tried(domain, found)
    intents = {**world.intents, **{intent.name: intent for intent in found if intent.name not in refused}}
    tool = TOOL.model_copy(update={"world": name, "server": f"{TOOL.server}-{world.name}", "domain": domain.name})
    return type(
        f"{world.__name__}_code",
        (CodingWorld, world),
        {
            "name": name,
            "code": _code_tool(),
            "tools": (*(each.model_copy(update={"world": name}) for each in world.tools), tool),
            "intents": intents,
            "unsolvable": {**world.unsolvable, **refused},
            "kinds": {kind: of for intent in intents.values() for kind, of in intent.kinds.items()},  # type: ignore[attr-defined]
            "wording": Wording(domain, tuple(intents.values())),  # type: ignore[arg-type]
            "system_prompt": f"{world.system_prompt} Use {TOOL.name} to compute.",
            "tool_words": {**world.tool_words, TOOL.name: ("compute", "calculate", "total", "average", "median", "总和", "平均", "中位数")},
        },
    )


def computing_intents(domain: Domain) -> list[Computing]:
    """The jobs of a domain that take the code tool: over what somebody owns, by the owner's id and by the owner's name."""
    found = []
    for entity in domain.by_number:
        owner = next(iter(entity.owners()), None)
        if owner is None or owner.place < 0 or not computable(entity):
            continue
        of = domain.entities[owner.type.entity]
        found.append(Computing(domain, f"compute_{entity.name}", entity, owner, ById(domain, of, owner.name)))
        name = searched_name(of)
        if name is not None:
            by_name = ByName(domain, of, name, f"{owner.name}_name")
            found.append(Computing(domain, f"compute_{entity.name}_named", entity, owner, by_name))
    return found
