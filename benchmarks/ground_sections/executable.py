"""How many real requests that are read exactly can be executed, in worlds of their services (`sgd_worlds.py`).

Whole requests (SGD, eight services that nothing was fitted on) are read; of those that are exactly read, the frame goes through admission,
and the expert's conversation through `verify`. Slots that an action needs and its user leaves open are drawn and said.

executable_with_given: share that became a task which verifies, where a world is given what the request names.
executable_without: the same with worlds of seeds alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.ground_sections.english import Requests, real_requests
from benchmarks.ground_sections.sgd_worlds import key_of, slots_in_spec, spec_of
from benchmarks.harness import Deadline, Figures
from filters.reading.complete import draw_missing, say
from filters.reading.declaration import ReadableIntent
from filters.reading.frames import Choice
from filters.reading.reader import Reader
from storage.records import Frame, Task
from synth.tasks.solver import NotAdmitted, admit, admit_any, expert_messages, world_seeds
from synth.tasks.split import STANDARD, division_of
from synth.tasks.verify import verify
from synth.worlds import WORLDS
from synth.worlds.base import World
from synth.worlds.declarative.compile import compile_spec

KEYS = ("executable_with_given", "executable_without")
MINUTES = 3
_SEEDS = 8


def measure(_: Deadline) -> Figures:
    requests = real_requests()
    worlds = compile_worlds(requests)
    reader = Reader(list(requests.worlds.values()))
    examples = [example.alternatives(reader.twins) for example in requests.labelled("whole")]
    with_given, without, reasons, exact = 0, 0, Counter[str](), 0
    for labels, (text, candidates) in zip(examples, reader.candidates([each[0].text for each in examples]), strict=True):
        choice = reader.choose(text, candidates)
        if not any(label.is_right(choice.frame) for label in labels):
            continue
        intent, world = choice.frame.intent.intent, worlds[choice.frame.intent.world.world.name]
        exact += 1
        reason = admit_reading(world, intent, choice, text.text)
        with_given += not reason
        without += is_solvable_without(world, intent, choice)
        reasons.update([reason] if reason else [])
    print(f"    {exact} exactly read; not executable: {dict(reasons.most_common(8))}", flush=True)
    return {"executable_with_given": with_given / exact, "executable_without": without / exact}


def compile_worlds(requests: Requests) -> Mapping[str, type[World]]:
    """Service -> its world."""
    raw = {service["service_name"]: service for service in requests.schema}
    worlds = {name: compile_spec(spec_of(world, raw[name])) for name, world in requests.worlds.items()}
    for world in worlds.values():
        if world.name not in WORLDS:
            WORLDS.register(world)
    return worlds


def said_slots(intent: ReadableIntent, choice: Choice) -> dict[str, Any]:
    return slots_in_spec(intent, {each.slot: each.span.value for each in choice.frame.filled})


def admit_reading(world: type[World], intent: ReadableIntent, choice: Choice, text: str) -> str:
    """Why the reading gives no task; empty if it gives one that verifies."""
    try:
        task = task_of_reading(world, intent, choice, text)
    except NotAdmitted as refused:
        return f"{world.name.partition('@')[0]}/{key_of(intent)}: {refused}"
    verdict = verify(world, task, expert_messages(world, task))
    return "" if verdict.success else ", ".join(name for name, holds in verdict.checks.items() if not holds)


def task_of_reading(world: type[World], intent: ReadableIntent, choice: Choice, text: str) -> Task:
    """The task of a request as it was read; slots that it leaves open are drawn and said.

    Raises:
        NotAdmitted: it says too little, or is not admitted.
    """
    slots = said_slots(intent, choice)
    drawn = draw_missing(world, key_of(intent), slots)
    if drawn is None:
        raise NotAdmitted("too little is said")
    frame = Frame(world=world.name, intent=key_of(intent), slots={**slots, **drawn})
    text = f"{text} {say(world, frame.intent, drawn, 'en')}" if drawn else text
    seeds = world_seeds(frame.id, 0, "train", _SEEDS)
    return admit_any(world, frame, text=text, language="en", seeds=seeds, division=division_of(frame, world, STANDARD))


def is_solvable_without(world: type[World], intent: ReadableIntent, choice: Choice) -> bool:
    slots = said_slots(intent, choice)
    drawn = draw_missing(world, key_of(intent), slots) or {}
    frame = Frame(world=world.name, intent=key_of(intent), slots={**slots, **drawn})
    return any(_is_admitted(world, frame, seed) for seed in _seeds(frame))


def _seeds(frame: Frame) -> Sequence[int]:
    return world_seeds(frame.id, 0, "train", _SEEDS)


def _is_admitted(world: type[World], frame: Frame, seed: int) -> bool:
    try:
        admit(world, frame, text="", language="en", seed=seed, division="seed")
    except NotAdmitted as refused:
        return refused.reason not in ("misfit", "unknown_intent")
    return True
