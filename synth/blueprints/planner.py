"""The scripted planner: a blueprint for a cell, made with what a cluster's tools can do.

It takes templates of the cell from a library (`template_library.py`), has one written (`draft.py`), and checks it. If no cluster has a
template for a cell that failed before, two clusters of one world are merged; if that does not help, the blueprint has the same domain and
band, and another mode family that is needed. A share of the drafts gets perturbations (`conversation_template.PERTURBATIONS`).

Everything is a function of the random generator that is passed in.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from storage.records import CODE_TOOL, frame_id
from synth.blueprints.blueprint import Bands, Blueprint, static_checks
from synth.blueprints.cell import Cell
from synth.blueprints.conversation_template import PERTURBATIONS, IntentPool, draw_template, evolve, intent_pool
from synth.blueprints.draft import Draft, FrameFilter, Offer, PlanFailed, training_filter
from synth.blueprints.phrases import slots_of
from synth.blueprints.schedule import ConversationTemplate
from synth.blueprints.template_library import TRIES_PER_EXTENSION, build_library, classify
from synth.clusters.business_clusters import Cluster
from synth.text.slot_kinds import Vocabulary
from synth.worlds import WORLDS
from synth.worlds.base import World, cached_per_world

VERSION = 4
MOST_DRAFTS = 6
"""Templates drafted at most for one set of tools."""
TRIES_BEFORE_MERGING = 2
"""Failures of a cell before two clusters are merged for it."""
_MOST_DRAWS = 24
"""Templates drawn at most until one may be used and needs a program, or none, as required."""
_MOST_ENUMERATED = 64
"""Up to so many frames with the same slots, all are checked."""


@cached_per_world()
def offers_code(world: type[World]) -> bool:
    """Whether `run_python` is among the tools of a world."""
    return any(tool.name == CODE_TOOL for tool in world.tools)


@cached_per_world(65536)
def _is_usable(world: type[World], is_allowed: FrameFilter, intent: str, slots: frozenset[str]) -> bool:
    """Whether any frame with these slots may be used. False only if they are few, of vocabulary values, and all kept for other uses."""
    slot_kinds = [(slot, world.kinds[slot.kind]) for name, slot in slots_of(world, intent).items() if name in slots]
    values = [tuple(kind.names) for slot, kind in slot_kinds if isinstance(kind, Vocabulary) and not slot.is_entity]
    if len(values) < len(slot_kinds) or math.prod(map(len, values)) > _MOST_ENUMERATED:
        return True
    names = [slot.name for slot, _ in slot_kinds]
    candidates = (dict(zip(names, combination, strict=True)) for combination in itertools.product(*values))
    return any(is_allowed(frame_id(world.name, intent, slots)) for slots in candidates)


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans conversations for clusters.

    is_allowed: whether a frame may be used (frames of other divisions may not); results are cached by this function's identity.
    chinese_share: share of conversations in Chinese; the others are in English.
    bands: complexity bands; None during calibration, which comes before them.
    veiled_share: share of steered conversations with perturbations.
    tries: earlier requests for the domain; its libraries grow with them.
    used_modes: sequence of modes -> conversations so far; templates of the least used sequence come first.
    code_share: share of conversations that need a program; None if no program can be run: then `run_python` is not on offer.
    factors: (world, intent) -> weight of its templates; 1 if absent.
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

        A conversation that is to need a program takes another mode family before it does without the program.

        clusters: tried in this order.
        failures: earlier failures of this cell.
        else_families: mode families to try in this order if the cell has no template.

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
            for template in self._templates(aim, offer, rng, is_computing):
                try:
                    return offer.cluster, self.draft(template, offer, rng, aim)
                except PlanFailed as failed:
                    last = failed
        raise last

    def offer(self, cluster: Cluster, partner: Cluster | None = None) -> Offer:
        assert cluster.world is not None
        return Offer(cluster, partner, self.code_share is not None and offers_code(WORLDS[cluster.world]))

    def _computes(self, rng: random.Random) -> bool:
        return self.code_share is not None and rng.random() < self.code_share

    def _templates(self, cell: Cell, offer: Offer, rng: random.Random, is_computing: bool) -> Iterator[ConversationTemplate]:
        """Templates of the cell that need a program (`is_computing`) or none, the least used sequences of modes first; half of them are
        changed by an operator that keeps them in the cell."""
        assert self.bands is not None
        pool = intent_pool(offer.world, offer.tools)
        library = build_library(offer.world, offer.tools, cell.domain, self.bands, self.tries // TRIES_PER_EXTENSION)
        section = library.get((cell.family, cell.band), {})
        by_modes = {modes: templates for modes, templates in section.items() if ("X" in modes) == is_computing}
        sequences = sorted(rng.sample(list(by_modes), len(by_modes)), key=lambda modes: self._usage(modes, by_modes[modes]))
        usable = ([template for template in by_modes[modes] if self._may_use(template)] for modes in sequences)
        for template in itertools.islice((self._choose(templates, rng) for templates in usable if templates), MOST_DRAFTS):
            changed = evolve(template, pool, rng) if rng.random() < 0.5 else template
            is_same = changed is template or pool.computes(changed) != is_computing or not self._may_use(changed)
            place = None if is_same else classify(changed, cell.domain, self.bands)
            yield changed if place is not None and place[0] == (cell.family, cell.band) else template

    def _usage(self, modes: str, templates: Sequence[ConversationTemplate]) -> float:
        """Uses of a sequence of modes, divided by the greatest factor of its templates."""
        return (self.used_modes.get(modes, 0) + 1) / max(map(self._factor, templates))

    def _choose(self, templates: Sequence[ConversationTemplate], rng: random.Random) -> ConversationTemplate:
        return rng.choices(templates, [self._factor(template) for template in templates])[0] if self.factors else rng.choice(templates)

    def _factor(self, template: ConversationTemplate) -> float:
        """The greatest factor of the template's intents."""
        return max((self.factors.get((template.world.name, goal.intent), 1.0) for goal in template.goals), default=1.0)

    def draw_unsteered(self, cluster: Cluster, rng: random.Random, *, domain: str | None = None, evolved_share: float = 0.0) -> Blueprint:
        """A blueprint without a cell: for calibration, as a candidate of coverage, and to compare the controller with.

        domain: domain of its first goal; None for any that the cluster serves.
        evolved_share: share of templates that an operator changes.

        Raises:
            PlanFailed: as `propose`.
        """
        offer, last = self.offer(cluster), PlanFailed("no_recipe")
        for _ in range(MOST_DRAFTS):
            try:
                pool = intent_pool(offer.world, offer.tools)
                template = self._draw_template(pool, rng, domain)
                if evolved_share and rng.random() < evolved_share:
                    changed = evolve(template, pool, rng)
                    template = changed if self._may_use(changed) else template
                return self.draft(template, offer, rng)
            except PlanFailed as failed:
                last = failed
        raise last

    def _draw_template(self, pool: IntentPool, rng: random.Random, domain: str | None) -> ConversationTemplate:
        """A template without a cell; a share `code_share` of them need a program."""
        template = draw_template(pool, rng, domain=domain)
        computes = self._computes(rng) if pool.computing else False
        for _ in range(_MOST_DRAWS):
            if pool.computes(template) == computes and self._may_use(template):
                break
            template = draw_template(pool, rng, domain=domain)
        return template

    def _may_use(self, template: ConversationTemplate) -> bool:
        return all(_is_usable(template.world, self.is_allowed, goal.intent, goal.slots) for goal in template.goals)

    def draft(self, template: ConversationTemplate, offer: Offer, rng: random.Random, cell: Cell | None = None) -> Blueprint:
        """The checked blueprint of a template; in the cell, if one is given.

        Raises:
            PlanFailed: no slots fit the template, or the blueprint fails its checks.
        """
        language = template.world.language_near("zh" if rng.random() < self.chinese_share else "en")
        is_perturbed = self.veiled_share > 0 and rng.random() < self.veiled_share
        perturbations = frozenset(rng.sample(PERTURBATIONS, rng.randint(1, 2)) if is_perturbed else ())
        is_usable = training_filter(self.is_allowed, template.world)
        return self.check_blueprint(Draft(template, offer, perturbations, language, is_usable, rng).write(), cell)

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
