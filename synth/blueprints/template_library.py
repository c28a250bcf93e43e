"""Recipes filed by what they would become: for a kitchen and a domain, those of every mode family and complexity band that can be found.

It is filled as a map of elites is (Mouret and Clune, 2015): some recipes as they come, then again and again one operator applied to a
recipe of a shelf drawn at random, and the outcome filed by its sketch. So rare shelves breed as often as common ones. On a shelf lie a
few recipes of each sequence of modes, of unlike intents. A book is a function of the kitchen, the domain, the bands and the number of
its volumes alone, and made once in a process; what is not in it is rare, or cannot be. The more a domain is asked for, the more volumes
it has.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from storage.records import content_id
from synth.blueprints.blueprint import Bands
from synth.blueprints.cell import Band, mode_family
from synth.blueprints.conversation_template import IntentPool, also_computing, domain_of, evolve, intent_pool, native
from synth.blueprints.schedule import ConversationTemplate
from synth.blueprints.sketch import sketch
from synth.worlds.base import World, cached_per_world

NATIVES, EVOLUTIONS, FURTHER = 48, 240, 120
"""Recipes drawn as they come for a book, operators applied for its first volume, and for each further one."""
TRIES_A_VOLUME = 25
"""How often a domain is asked for before its books gain a volume."""

LibraryKey = tuple[str, Band]
"""Mode family and complexity band."""
_COMPUTING_TOO = 0.2
"""Where programs can be run: of evolutions, those that add a goal that needs one instead. Such goals are few, and wanted in every cell."""
_ALIKE = 6
"""Recipes kept of one sequence of modes."""
Cookbook = Mapping[LibraryKey, Mapping[str, Sequence[ConversationTemplate]]]
"""Recipes by shelf and sequence of modes."""


def shelf_of(recipe: ConversationTemplate, domain: str, bands: Bands) -> tuple[LibraryKey, str] | None:
    """Where a recipe belongs, and its sequence of modes; None if it has no plan, or is of another domain."""
    likely = sketch(recipe) if domain_of(recipe) == domain else None
    return None if likely is None else ((mode_family(likely.coarse), bands.band(likely.complexity)), likely.coarse)


@cached_per_world(8192)
def build_library(world: type[World], tools: frozenset[str], domain: str, bands: Bands, volumes: int = 0) -> Cookbook:
    """The book of the kitchen with these tools; empty where it serves no intent of the domain.

    volumes: that were added to the first."""
    pots: IntentPool = intent_pool(world, tools)
    if domain not in pots.by_domain:
        return {}
    rng = random.Random(content_id("cookbook", world.name, sorted(tools), domain, volumes))
    before = build_library(world, tools, domain, bands, volumes - 1) if volumes else {}
    shelves = {shelf: {modes: list(group) for modes, group in recipes.items()} for shelf, recipes in before.items()}

    def file(recipe: ConversationTemplate) -> None:
        place = shelf_of(recipe, domain, bands)
        if place is None:
            return
        group = shelves.setdefault(place[0], {}).setdefault(place[1], [])
        if len(group) < _ALIKE and all(_intents(recipe) != _intents(other) for other in group):
            group.append(recipe)

    for _ in range(NATIVES if not volumes else 0):
        file(native(pots, rng, domain=domain))
    for _ in range((FURTHER if volumes else EVOLUTIONS) if shelves else 0):
        recipe = rng.choice(rng.choice(list(shelves[rng.choice(list(shelves))].values())))
        computes = bool(pots.computing) and rng.random() < _COMPUTING_TOO
        changed = also_computing(recipe, pots, rng) if computes else evolve(recipe, pots, rng)
        if changed is not recipe:
            file(changed)
    return shelves


def _intents(recipe: ConversationTemplate) -> tuple[str, ...]:
    return tuple(goal.intent for goal in recipe.goals)
