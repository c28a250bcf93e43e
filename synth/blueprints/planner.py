"""The scripted planner: a blueprint for a cell, out of what a cluster's tools can do.

Recipes that lie in the cell it finds in a cookbook (`template_library.py`), has one written (`draft.py`), and checks it. Where no cluster
has a recipe for a cell that failed before, two clusters of one world are merged; where that does not help, the blueprint is of the same
domain and band, and of another mode family that is wanted. Veils (`recipes.VEILS`) are put over a share of the drafts.

Everything is a function of the random generator that is passed in.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from storage.records import CODE_TOOL, Language, frame_id
from synth.blueprints.blueprint import Bands, Blueprint, static_checks
from synth.blueprints.cell import Cell
from synth.blueprints.conversation_template import VEILS, IntentPool, evolve, intent_pool, native
from synth.blueprints.draft import Draft, FrameFilter, Offer, PlanFailed
from synth.blueprints.phrases import slots_of
from synth.blueprints.schedule import ConversationTemplate
from synth.blueprints.template_library import TRIES_A_VOLUME, Cookbook, build_library, shelf_of
from synth.clusters.business_clusters import Cluster
from synth.text.slot_kinds import Vocabulary
from synth.worlds import WORLDS
from synth.worlds.base import World, cached_per_world

VERSION = 3
DRAFTS = 6
"""Recipes drafted at most for one kitchen."""
TRIES_BEFORE_MERGING = 2
"""Failures of a cell before clusters are merged for it."""
_NATIVES = 24
"""Recipes as they come that are looked at for one that may be used, and that needs a program, or none."""
_MOST_ENUMERATED = 64
"""Frames of one kind that are all looked at."""


@cached_per_world()
def offers_code(world: type[World]) -> bool:
    """Whether `run_python` is among the tools of a world."""
    return any(tool.name == CODE_TOOL for tool in world.tools)


@cached_per_world(65536)
def _is_usable(world: type[World], is_allowed: FrameFilter, intent: str, slots: frozenset[str]) -> bool:
    """Whether any frame with these slots may be used: False where there are few, of words alone, and all are kept for other uses."""
    slot_kinds = [(slot, world.kinds[slot.kind]) for name, slot in slots_of(world, intent).items() if name in slots]
    values = [tuple(kind.names) for slot, kind in slot_kinds if isinstance(kind, Vocabulary) and not slot.is_entity]
    if len(values) < len(slot_kinds) or math.prod(map(len, values)) > _MOST_ENUMERATED:
        return True
    names = [slot.name for slot, _ in slot_kinds]
    candidates = (dict(zip(names, combination, strict=True)) for combination in itertools.product(*values))
    return any(is_allowed(frame_id(world.name, intent, slots)) for slots in candidates)


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans for clusters.

    is_allowed: which frames may be used (those of other divisions may not); what it says of few frames is remembered by function.
    chinese_share: of conversations, the rest are English.
    bands: None while calibrating, when there are none yet.
    veiled_share: of steered conversations, those that a veil is put over.
    tries: how often the domain was asked for before; its cookbooks grow with them.
    used_modes: conversations there are by their sequence of modes; recipes for the least used come first.
    code_share: of conversations, those that are to need a program; None where none can be run, so that `run_python` is not on offer.
    factors: by world and intent, how many times as often its recipes may be used as others; 1 where it is not here.
    """

    is_allowed: FrameFilter
    chinese_share: float = 0.3
    bands: Bands | None = None
    veiled_share: float = 0.0
    tries: int = 0
    used_modes: Mapping[str, int] = field(default_factory=dict)
    code_share: float | None = None
    factors: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def propose(
        self,
        cell: Cell,
        clusters: Sequence[Cluster],
        failures: int,
        rng: random.Random,
        else_families: Sequence[str] = (),
    ) -> tuple[Cluster, Blueprint]:
        """A blueprint that is predicted to lie in the cell, or else in its domain and band; and its cluster.

        clusters: to be tried in this order. failures: how often this cell was missed before. else_families: mode families that will do
        where the cell cannot be had, in this order. A conversation that is to need a program rather has another mode family than none.

        Raises:
            PlanFailed: none was found within the budget of drafts.
        """
        last = PlanFailed("no_recipe", "no recipe looked like this cell")
        offers = [self.offer(cluster) for cluster in clusters]
        if failures >= TRIES_BEFORE_MERGING:
            offers += [self.offer(clusters[0], other) for other in clusters[1:2] if other.world == clusters[0].world]
        computes = (True, False) if self._computes(rng) else (False,)
        families = (cell.family, *(family for family in else_families if family != cell.family))
        for is_computing, family, offer in itertools.product(computes, families, offers):
            aim = Cell(cell.domain, family, cell.band)
            for recipe in self._recipes(aim, offer, rng, is_computing):
                try:
                    return offer.cluster, self.draft(recipe, offer, rng, aim)
                except PlanFailed as failed:
                    last = failed
        raise last

    def offer(self, cluster: Cluster, partner: Cluster | None = None) -> Offer:
        assert cluster.world is not None
        return Offer(cluster, partner, self.code_share is not None and offers_code(WORLDS[cluster.world]))

    def _computes(self, rng: random.Random) -> bool:
        return self.code_share is not None and rng.random() < self.code_share

    def _book(self, offer: Offer, domain: str) -> Cookbook:
        assert self.bands is not None
        return build_library(offer.world, offer.tools, domain, self.bands, self.tries // TRIES_A_VOLUME)

    def _recipes(self, cell: Cell, offer: Offer, rng: random.Random, is_computing: bool) -> Iterator[ConversationTemplate]:
        """Recipes of the cell that need a program, or none, of the least worn sequences of modes first, every other one changed by an
        operator that leaves it where it is."""
        assert self.bands is not None
        pots, entries = intent_pool(offer.world, offer.tools), self._book(offer, cell.domain).get((cell.family, cell.band), {})
        shelf = {modes: recipes for modes, recipes in entries.items() if ("X" in modes) == is_computing}
        templates = sorted(rng.sample(list(shelf), len(shelf)), key=lambda modes: self._wear(modes, shelf[modes]))
        usable = ([recipe for recipe in shelf[modes] if self._may_use(recipe)] for modes in templates)
        for recipe in itertools.islice((self._one_of(recipes, rng) for recipes in usable if recipes), DRAFTS):
            changed = evolve(recipe, pots, rng) if rng.random() < 0.5 else recipe
            is_same = changed is recipe or pots.computes(changed) != is_computing or not self._may_use(changed)
            place = None if is_same else shelf_of(changed, cell.domain, self.bands)
            yield changed if place is not None and place[0] == (cell.family, cell.band) else recipe

    def _wear(self, modes: str, recipes: Sequence[ConversationTemplate]) -> float:
        """How used a sequence of modes is: uses, divided by the greatest factor of its recipes."""
        return (self.used_modes.get(modes, 0) + 1) / max(map(self._factor, recipes))

    def _one_of(self, recipes: Sequence[ConversationTemplate], rng: random.Random) -> ConversationTemplate:
        return rng.choices(recipes, [self._factor(recipe) for recipe in recipes])[0] if self.factors else rng.choice(recipes)

    def _factor(self, recipe: ConversationTemplate) -> float:
        """The greatest of its goals' intents."""
        return max((self.factors.get((recipe.world.name, goal.intent), 1.0) for goal in recipe.goals), default=1.0)

    def draw_unsteered(self, cluster: Cluster, rng: random.Random, *, domain: str | None = None) -> Blueprint:
        """A blueprint as it comes, for calibration and as the control that steering is compared with.

        domain: of its first goal; None for any that the cluster serves.

        Raises:
            PlanFailed: as `propose`.
        """
        offer, last = self.offer(cluster), PlanFailed("no_recipe")
        for _ in range(DRAFTS):
            try:
                return self.draft(self._native(intent_pool(offer.world, offer.tools), rng, domain), offer, rng)
            except PlanFailed as failed:
                last = failed
        raise last

    def _native(self, pots: IntentPool, rng: random.Random, domain: str | None) -> ConversationTemplate:
        """A recipe as it comes, as often with a program as is wanted."""
        recipe = native(pots, rng, domain=domain)
        computes = self._computes(rng) if pots.computing else False
        for _ in range(_NATIVES):
            if pots.computes(recipe) == computes and self._may_use(recipe):
                break
            recipe = native(pots, rng, domain=domain)
        return recipe

    def _may_use(self, recipe: ConversationTemplate) -> bool:
        return all(_is_usable(recipe.world, self.is_allowed, goal.intent, goal.slots) for goal in recipe.goals)

    def draft(self, recipe: ConversationTemplate, offer: Offer, rng: random.Random, cell: Cell | None = None) -> Blueprint:
        """The blueprint of a recipe, checked; in the cell, if one is given.

        Raises:
            PlanFailed: the recipe fits no slots, or what came of it is not what it seemed.
        """
        language: Language = "zh" if rng.random() < self.chinese_share else "en"
        veils = frozenset(rng.sample(VEILS, rng.randint(1, 2))) if self.veiled_share and rng.random() < self.veiled_share else frozenset()
        return self.check_blueprint(Draft(recipe, offer, veils, language, self.is_allowed, rng).write(), cell)

    def check_blueprint(self, blueprint: Blueprint, cell: Cell | None) -> Blueprint:
        """The blueprint, if nothing is wrong with it, and it lies in the cell, if one is given.

        Raises:
            PlanFailed: `static_checks`, with all that is wrong.
        """
        tools = {tool.name: tool for tool in WORLDS[blueprint.world].tools if tool.name in blueprint.tools}
        problems = static_checks(blueprint, tools, bands=self.bands, band=None if cell is None else cell.band)
        if cell is not None and (blueprint.family, blueprint.domain) != (cell.family, cell.domain):
            problems.append(f"predicted modes {blueprint.mode_coarse} are not of family {cell.family}")
        if problems:
            raise PlanFailed("static_checks", "; ".join(problems))
        return blueprint
