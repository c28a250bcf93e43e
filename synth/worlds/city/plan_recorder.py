"""How an expert plan is written: by executing it.

A `Script` runs calls in a world, records them, and collects the answer's sentences and facts. It never guesses: what a sentence says
comes from an observation that `call` returned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal

from storage.records import JSON, Call, Fact, Language, Plan, Success
from synth.worlds.base import Solution, Unsolvable, World
from synth.worlds.city.map.city_map import City, CityBased

FactKind = Literal["number", "price", "time", "date", "name", "id", "word"]


class Script:
    """A plan under construction.

    world: executes the calls; it is read only, so nothing need be undone.
    language: what the answer is written in.
    """

    def __init__(self, world: World, language: Language) -> None:
        self.world = world
        self.language: Language = language
        self._calls: list[Call] = []
        self._facts: list[Fact] = []
        self._evidence: list[Fact] = []
        self._sentences: list[str] = []
        self._shown: list[str] = []

    @property
    def city(self) -> City:
        """The world's city, for reading back what an observation's prose states."""
        assert isinstance(self.world, CityBased)
        return self.world.city

    def call(self, tool: str, arguments: Mapping[str, JSON]) -> dict[str, JSON]:
        """Executes one call; arguments that are None are left out.

        Raises:
            Unsolvable: the world refused the call.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        observation = self.world.call(tool, given)
        if observation.is_error:
            raise Unsolvable("call refused", observation.content)
        self._calls.append(Call(tool=tool, arguments=given))
        self._shown.append(observation.content)
        result: dict[str, JSON] = json.loads(observation.content)
        return result

    def has_shown(self, identifier: str) -> bool:
        """Whether a result before the last one showed this identifier."""
        return any(identifier in text for text in self._shown[:-1])

    def say(self, en: str, zh: str) -> None:
        """Adds a sentence to the answer."""
        self._sentences.append(en if self.language == "en" else zh)

    def fact(self, kind: FactKind, value: JSON, *alternatives: str, rivals: Sequence[str] = ()) -> None:
        """Requires that the answer states this value and none of the rivals. The caller states the value in a sentence (`say`)."""
        self._add(self._facts, kind, value, alternatives, tuple(rivals))

    def evidence(self, kind: FactKind, value: JSON, *alternatives: str) -> None:
        """An observation must have shown this."""
        self._add(self._evidence, kind, value, alternatives, ())

    def _add(self, facts: list[Fact], kind: FactKind, value: JSON, alternatives: tuple[str, ...], rivals: tuple[str, ...]) -> None:
        text = str(value)
        fact = Fact(kind=kind, value=text, alternatives=tuple(dict.fromkeys(a for a in alternatives if a != text)), rivals=rivals)
        if fact not in facts:
            facts.append(fact)

    def solution(self) -> Solution:
        answer = (" " if self.language == "en" else "").join(self._sentences)
        return Solution(Plan(calls=tuple(self._calls), answer=answer), Success(facts=tuple(self._facts), evidence=tuple(self._evidence)))
