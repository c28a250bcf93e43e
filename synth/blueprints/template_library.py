"""A library of conversation templates, filed by what they would become: for tools and a domain, the templates of every mode family and
complexity band that can be found.

It is filled as a map of elites is (Mouret and Clune, 2015): some templates are drawn, then again and again one operator changes a template
of a random section, and a sketch says where the result belongs. Every section is drawn with the same probability. A section holds a few
templates of each sequence of modes, with different intents. A library is a function of the tools, the domain, the bands and the number of
its extensions alone, and is made once in a process. It grows with the number of requests for its domain. What it does not hold is rare or
impossible.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from storage.records import content_id
from synth.blueprints.blueprint import Bands
from synth.blueprints.cell import Band, mode_family
from synth.blueprints.conversation_template import IntentPool, add_computing_goal, domain_of, draw_template, evolve, intent_pool
from synth.blueprints.schedule import ConversationTemplate
from synth.blueprints.sketch import sketch
from synth.worlds.base import World, cached_per_world

DRAWN, EVOLUTIONS, EXTENSION_EVOLUTIONS = 48, 240, 120
"""Templates drawn for a library; operators applied for it at first, and for each extension."""
TRIES_PER_EXTENSION = 25
"""Requests for a domain before its libraries are extended."""

LibraryKey = tuple[str, Band]
"""Mode family and complexity band."""
_COMPUTING_TOO = 0.2
"""Share of evolutions that add a goal that needs a program, where one can be run. Such goals are few, and every cell needs them."""
_MOST_PER_SEQUENCE = 6
"""Templates kept for one sequence of modes."""
TemplateLibrary = Mapping[LibraryKey, Mapping[str, Sequence[ConversationTemplate]]]
"""Section -> sequence of modes -> templates."""


def classify(template: ConversationTemplate, domain: str, bands: Bands) -> tuple[LibraryKey, str] | None:
    """The section of a template and its sequence of modes; None if it has no plan or another domain."""
    likely = sketch(template) if domain_of(template) == domain else None
    return None if likely is None else ((mode_family(likely.coarse), bands.band(likely.complexity)), likely.coarse)


@cached_per_world(8192)
def build_library(world: type[World], tools: frozenset[str], domain: str, bands: Bands, extensions: int = 0) -> TemplateLibrary:
    """The library for these tools; empty if they serve no intent of the domain.

    extensions: number of extensions of the first library.
    """
    pool: IntentPool = intent_pool(world, tools)
    if domain not in pool.by_domain:
        return {}
    rng = random.Random(content_id("cookbook", world.name, sorted(tools), domain, extensions))
    before = build_library(world, tools, domain, bands, extensions - 1) if extensions else {}
    sections = {section: {modes: list(group) for modes, group in templates.items()} for section, templates in before.items()}

    def add(template: ConversationTemplate) -> None:
        position = classify(template, domain, bands)
        if position is None:
            return
        group = sections.setdefault(position[0], {}).setdefault(position[1], [])
        if len(group) < _MOST_PER_SEQUENCE and all(_intents(template) != _intents(other) for other in group):
            group.append(template)

    for _ in range(DRAWN if not extensions else 0):
        add(draw_template(pool, rng, domain=domain))
    for _ in range((EXTENSION_EVOLUTIONS if extensions else EVOLUTIONS) if sections else 0):
        template = rng.choice(rng.choice(list(sections[rng.choice(list(sections))].values())))
        computes = bool(pool.computing) and rng.random() < _COMPUTING_TOO
        changed = add_computing_goal(template, pool, rng) if computes else evolve(template, pool, rng)
        if changed is not template:
            add(changed)
    return sections


def _intents(template: ConversationTemplate) -> tuple[str, ...]:
    return tuple(goal.intent for goal in template.goals)
