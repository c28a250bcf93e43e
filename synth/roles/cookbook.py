"""Recipes filed by what they would become: for a kitchen and a domain, those of every mode family and complexity band that can be found.

It is filled as a map of elites is (Mouret and Clune, 2015): some recipes as they come, then again and again one operator applied to a
recipe of a shelf drawn at random, and the outcome filed by its sketch. So rare shelves breed as often as common ones. On a shelf lies one
recipe of each sequence of modes. A book is a function of the kitchen, the domain and the bands alone, and made once in a process; what
is not in it is rare, or cannot be.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache

from storage.records import content_id
from synth.blueprints import Bands
from synth.evolve import Band, mode_family
from synth.roles.recipes import Kitchen, domain_of, evolved, kitchen, native
from synth.roles.schedule import Recipe
from synth.roles.sketch import sketch

NATIVES, EVOLUTIONS = 48, 240
"""Recipes drawn as they come, and operators applied, for one book."""

Shelf = tuple[str, Band]
"""Mode family and complexity band."""
Cookbook = Mapping[Shelf, tuple[Recipe, ...]]


def shelf_of(recipe: Recipe, domain: str, bands: Bands) -> tuple[Shelf, str] | None:
    """Where a recipe belongs, and its sequence of modes; None if it has no plan, or is of another domain."""
    likely = sketch(recipe) if domain_of(recipe) == domain else None
    return None if likely is None else ((mode_family(likely.coarse), bands.band(likely.complexity)), likely.coarse)


@lru_cache(maxsize=4096)
def cookbook(world: str, tools: frozenset[str], domain: str, bands: Bands) -> Cookbook:
    """The book of the kitchen with these tools; empty where it serves no intent of the domain."""
    pots: Kitchen = kitchen(world, tools)
    if domain not in pots.by_domain:
        return {}
    rng = random.Random(content_id("cookbook", world, sorted(tools), domain))
    shelves: dict[Shelf, dict[str, Recipe]] = {}

    def file(recipe: Recipe) -> None:
        place = shelf_of(recipe, domain, bands)
        if place is not None:
            shelves.setdefault(place[0], {}).setdefault(place[1], recipe)

    for _ in range(NATIVES):
        file(native(pots, rng, domain=domain))
    for _ in range(EVOLUTIONS if shelves else 0):
        recipe = rng.choice(list(shelves[rng.choice(list(shelves))].values()))
        changed = evolved(recipe, pots, rng)
        if changed is not recipe:
            file(changed)
    return {shelf: tuple(recipes.values()) for shelf, recipes in shelves.items()}
