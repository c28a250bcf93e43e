"""The domains of the experiment: what conversations are held in, and the held-out ones that policies are measured in.

One idea: domains of one theme share their nouns and verbs, but each is another combination of them, so a tool of a held-out domain
(`defer_lesson_bill`) is made of words that training domains have (`defer_wedding_invoice`, `pay_lesson_bill`), itself being in none.
A held-out task acts with such a tool. All tools are named in one manner, and what a tiny policy reads badly is left out: searches and
lists (long observations), except where an action counts rows; tasks that say a date, or take more than two calls.

What it does not do: make conversations (`pools.py`), or say how a prompt looks (`prompts.py`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from benchmarks.experiment.config import DomainsConfig
from storage.errors import HeadraceError
from storage.records import CODE_TOOL, Frame, Task
from synth.tasks.solver import NotAdmitted, Use, admit_any, training_seed, world_seeds
from synth.tasks.wording import render
from synth.text.slot_kinds import Date
from synth.worlds import WORLDS
from synth.worlds.base import Intent, World
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.generate import generate
from synth.worlds.declarative.generate.components import themes
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.spec_schema import MIN_RULES

_NAMING = {"case": "snake", "order": "verb_first", "get": "get", "search": "search", "list": "list", "ids": "id"}
_MOST_SEEDS = 20_000
_MOST_CALLS = 2
_SEEDS_A_TASK = 24
_MISSES_A_TASK = 6


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

    @property
    def known_tools(self) -> frozenset[str]:
        """Names of the tools of training domains."""
        return frozenset(tool.name for world in self.training for tool in world.tools)


def other_domains(config: DomainsConfig, themes_wanted: int, each: int) -> tuple[type[World], ...]:
    """Worlds of themes that the experiment does not use, registered: what base policies practise on."""
    known = {theme.en: theme.key for theme in themes() if theme.key not in config.themes}
    chosen = random.Random("other themes").sample(sorted(known.values()), min(themes_wanted, len(known)))
    found: dict[str, list[type[World]]] = {theme: [] for theme in chosen}
    for seed in range(_MOST_SEEDS, 2 * _MOST_SEEDS):
        spec = generate(seed)
        worlds = found.get(known.get(spec["about"].partition(" / ")[0], ""))
        if worlds is None or len(worlds) == each or len(spec["entities"]) > config.most_entities or not _is_admitted(seed):
            continue
        worlds.append(_world(seed))
        WORLDS.register(worlds[-1])
        if all(len(worlds) == each for worlds in found.values()):
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
        if spec["naming"]["order"] != "verb_first" or "prefix" in spec["naming"] or not _is_admitted(seed):
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
    """Takes searches and lists away, but for rows that an action counts, and as many rules as a domain can do without."""
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


# ---- tasks -----------------------------------------------------------------------------------------------------------------------


def draw_tasks(worlds: Sequence[type[World]], count: int, *, use: Use, seed: int, unknown_to: frozenset[str] | None = None) -> list[Task]:
    """`count` English tasks that change something, evenly over worlds and their intents.

    use: `train` and any other never share a world seed. unknown_to: names of tools; a task then acts with a tool that is not among them,
    but all of whose words are words of theirs, as are those of what it looks up.

    Raises:
        HeadraceError: the worlds do not give so many.
    """
    rng = random.Random(f"experiment/{use}/{seed}")
    jobs = [(world, intent) for world in worlds for intent in _short_acts(world)]
    if unknown_to is not None:
        words = {word for name in unknown_to for word in name.split("_")}
        jobs = [(world, intent) for world, intent in jobs if _acts_with(intent) not in unknown_to and _words(intent) <= words]
    rng.shuffle(jobs)
    found: dict[str, Task] = {}
    for turn in range(count * _MISSES_A_TASK):
        if len(found) == count or not jobs:
            break
        task = _draw(*jobs[turn % len(jobs)], use, rng)
        if task is not None:
            found.setdefault(task.id, task)
    if len(found) < count:
        raise HeadraceError(f"the domains give {len(found)} of {count} tasks for {use}; take more domains of each theme, or fewer tasks")
    return list(found.values())


def _short_acts(world: type[World]) -> list[Intent]:
    """Intents that change the world in one or two calls, without search or list, and say no date."""
    return [intent for intent in world.intents.values() if intent.refusal is None and not intent.needs_no_tool and _is_short(world, intent)]


def _is_short(world: type[World], intent: Intent) -> bool:
    calls = intent.shape(_required(intent)).tools
    slots = {slot.name: slot.kind for slot in intent.slots}
    says_a_date = any(isinstance(world.kinds[slots[name]], Date) for name in _required(intent))
    changing = {tool.name for tool in world.tools if tool.changes_state}
    reads = [name for name in calls if name not in changing]
    return 1 <= len(calls) <= _MOST_CALLS and calls[-1] in changing and all(name.startswith("get_") for name in reads) and not says_a_date


def _acts_with(intent: Intent) -> str:
    return intent.shape(_required(intent)).tools[-1]


def _words(intent: Intent) -> set[str]:
    return {word for name in intent.shape(_required(intent)).tools for word in name.split("_")}


def _required(intent: Intent) -> frozenset[str]:
    return frozenset(slot.name for slot in intent.slots if slot.is_required)


def _draw(world: type[World], intent: Intent, use: Use, rng: random.Random) -> Task | None:
    """A task of an intent, plainly worded; None where what was drawn is not admitted."""
    slots: Mapping[str, Any] = world(training_seed(rng.randrange(2**20))).draw_slots(intent.name, _required(intent), rng)
    frame = Frame(world=world.name, intent=intent.name, slots=dict(slots))
    try:
        task = admit_any(
            world,
            frame,
            text=render(world, frame, "en", rng, canonical=True),
            language="en",
            seeds=world_seeds(frame.id, 0, use, _SEEDS_A_TASK),
            division="seed" if use == "train" else "held_out",
            use=use,
        )
    except NotAdmitted:
        return None
    changes = any(tool.changes_state for tool in world.tools if tool.name == task.plan.calls[-1].tool)
    return task if changes and CODE_TOOL not in task.tools else None
