"""The domains of the experiments: those that conversations are drawn in, those that policies are measured in, and those of the base's
practice.

Domains are generated. Those of one theme share their nouns and verbs, but each combines them in another way: a tool of a held-out domain
(`defer_lesson_bill`) is made of words that training domains have (`defer_wedding_invoice`, `pay_lesson_bill`). All tools are named in
one manner, and what a tiny policy reads badly is left out: searches and lists (long results), except for rows that an action counts.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from storage.errors import HeadraceError
from synth.worlds import WORLDS
from synth.worlds.base import World
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.generate import generate
from synth.worlds.declarative.generate.components import themes
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.spec_schema import MIN_RULES

_NAMING = {"case": "snake", "order": "verb_first", "get": "get", "search": "search", "list": "list", "ids": "id"}
THEMES = ("pet_boarding", "driving_school", "estate_agency", "insurance", "golf_club", "wedding")
"""Of the experiments."""
SETTING_THEMES = ("car_rental", "museum", "dental_clinic", "music_school", "marina", "florist")
"""On which settings were chosen (learning rates, weights of features), and nothing is reported."""
_PRACTICE_THEMES, _DOMAINS_A_THEME = 24, 3
_MOST_SEEDS = 20_000


@dataclass(frozen=True, slots=True)
class DomainsConfig:
    """themes: of the generator (`themes.yaml`). training, held_out: domains of each theme. most_entities: of a domain."""

    themes: tuple[str, ...] = THEMES
    training: int = 5
    held_out: int = 2
    most_entities: int = 5


@dataclass(frozen=True, slots=True)
class DomainSeeds:
    """Seeds of `generate` that the domains come from: by them any process has the same worlds."""

    training: tuple[int, ...]
    held_out: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Domains:
    """Worlds, registered in this process."""

    training: tuple[type[World], ...]
    held_out: tuple[type[World], ...]


@lru_cache(maxsize=1)
def practice_domains() -> tuple[type[World], ...]:
    """Worlds of themes that no experiment uses, registered: what base policies practise on."""
    known = {theme.en: theme.key for theme in themes() if theme.key not in (*THEMES, *SETTING_THEMES)}
    chosen = random.Random("practice").sample(sorted(known.values()), _PRACTICE_THEMES)
    found: dict[str, list[type[World]]] = {theme: [] for theme in chosen}
    for seed in range(_MOST_SEEDS, 2 * _MOST_SEEDS):
        spec = generate(seed)
        worlds = found.get(known.get(spec["about"].partition(" / ")[0], ""))
        is_full = worlds is None or len(worlds) == _DOMAINS_A_THEME
        if is_full or len(spec["entities"]) > DomainsConfig().most_entities or not _is_plainly_named(spec) or not _is_admitted(seed):
            continue
        assert worlds is not None
        worlds.append(_world(seed))
        WORLDS.register(worlds[-1])
        if all(len(worlds) == _DOMAINS_A_THEME for worlds in found.values()):
            break
    return tuple(world for worlds in found.values() for world in worlds)


def choose_domains(config: DomainsConfig) -> DomainSeeds:
    """The first seeds whose domains fit, theme by theme; no two domains have one name.

    Raises:
        HeadraceError: there is no such theme, or too few domains of it.
    """
    known = {theme.en: theme.key for theme in themes()}
    if strangers := sorted(set(config.themes) - set(known.values())):
        raise HeadraceError(f"domains.themes: there is no theme {strangers[0]!r}; there are {', '.join(sorted(known.values()))}")
    wanted = config.training + config.held_out
    found: dict[str, list[int]] = {theme: [] for theme in config.themes}
    names: set[str] = set()
    for seed in range(_MOST_SEEDS):
        spec = generate(seed)
        seeds = found.get(known[spec["about"].partition(" / ")[0]])
        if seeds is None or len(seeds) == wanted or len(spec["entities"]) > config.most_entities or spec["domain"] in names:
            continue
        if not _is_plainly_named(spec) or not _is_admitted(seed):
            continue
        names.add(spec["domain"])
        seeds.append(seed)
        if all(len(each) == wanted for each in found.values()):
            training = tuple(seed for seeds in found.values() for seed in seeds[: config.training])
            return DomainSeeds(training, tuple(seed for seeds in found.values() for seed in seeds[config.training :]))
    short = min(found, key=lambda theme: len(found[theme]))
    raise HeadraceError(f"domains: theme {short} has {len(found[short])} of {wanted} domains; ask for fewer, or for more most_entities")


@lru_cache(maxsize=4)
def domains_of(seeds: DomainSeeds) -> Domains:
    """The worlds of these seeds, made known in this process."""
    made = Domains(tuple(_world(seed) for seed in seeds.training), tuple(_world(seed) for seed in seeds.held_out))
    for world in (*made.training, *made.held_out):
        WORLDS.register(world)
    return made


def _is_plainly_named(spec: Mapping[str, Any]) -> bool:
    return spec["naming"]["order"] == "verb_first" and "prefix" not in spec["naming"]


def _is_admitted(seed: int) -> bool:
    try:
        _world(seed)
    except SpecError:
        return False
    return True


def _world(seed: int) -> type[World]:
    spec = generate(seed)
    spec["naming"] = dict(_NAMING)
    _shorten(spec)
    return compile_spec(spec)


def _shorten(spec: dict[str, Any]) -> None:
    """Removes searches and lists, except of rows that an action counts, idle rules, and as many other rules as a domain can do without."""
    spec["info"] = []
    written = str(list(spec["actions"].values()))
    for key, entity in spec["entities"].items():
        if f"count({key}," not in written:
            entity["tools"] = ["get"]
        for field in entity["fields"].values():
            field.pop("owned", None)
    spare = sum(len(action["rules"]) for action in spec["actions"].values()) - MIN_RULES
    for action in reversed(spec["actions"].values()):
        for name in list(action["rules"])[: max(0, spare)]:
            del action["rules"][name]
            spare -= 1
