"""Fits the weights of the Chinese reader (`filters/reading/chinese/weights_zh.json`) on half of CrossWOZ's validation part.

    HEADRACE_TEST_DATA=... python -m benchmarks.ground_sections.fit_chinese

The other half is what `chinese.py` measures. The confidence meets requests that no intent serves: one domain at a time, or some slots, are
left out of the world; and generated requests to the library's worlds are read with all intents, and with half of them.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.ground_sections import crosswoz
from benchmarks.ground_sections.near_misses import WORLDS as LIBRARY
from filters.reading.chinese.chinese_frames import Weights
from filters.reading.chinese.chinese_reader import ChineseReader, reading_of
from filters.reading.declaration import ReadableWorld
from filters.reading.labels.fit import fit_logistic, fit_softmax
from filters.reading.of_world import read_intents, readable_world, slots_of
from filters.reading.readings import Reading
from filters.reading.slots import Features
from storage.records import Frame
from synth.tasks.wording import render
from synth.worlds import WORLDS
from synth.worlds.base import World

_ABOUT = (
    "Weights of filters/reading/chinese, fitted by benchmarks/ground_sections/fit_chinese.py on half of the validation part of CrossWOZ "
    "(https://github.com/thu-coai/CrossWOZ, Apache-2.0)."
)
_START: Weights = {"frame": {"cosine": 4.0, "shared": 1.0, "odds": 0.8, "unread": -1.0, "required_share": 1.0, "foreign": -0.5}}
_PRIOR = {"unread": -2.0, "foreign": -2.0, "required_share": 3.0, "rival": -1.0, "nothing_shared": -3.0, "least_name": 2.0}
"""What few of these requests can teach."""


def main() -> None:
    folder = Path(os.environ["HEADRACE_TEST_DATA"]) / "real_queries"
    world = crosswoz.world(folder)
    requests = crosswoz.halves(crosswoz.requests_in(folder, "val"))[0]
    frame = _frame_weights(world, requests)
    features, labels = list[Features](), list[bool]()
    for reduced in (world, *_without_one(world), *_without_slots(world)):
        reader = ChineseReader([reduced], weights={"frame": frame, "confidence": {}})
        for request, choice in zip(requests, reader.choices([each.text for each in requests]), strict=True):
            features.append(choice.features)
            labels.append(request.is_right(reading_of(choice, 0.0)))
    generated = [each for name in LIBRARY for each in _generated(WORLDS[name])]
    for worlds in (_library(1.0), _library(0.5), [world]):
        reader = ChineseReader(worlds, weights={"frame": frame, "confidence": {}})
        for (wanted, _), choice in zip(generated, reader.choices([text for _, text in generated]), strict=True):
            features.append(choice.features)
            labels.append(_is_exact(wanted, reading_of(choice, 0.0)))
    weights = {"frame": frame, "confidence": fit_logistic(features, labels, decay=2.0, prior=_PRIOR)}
    path = Path("filters/reading/chinese/weights_zh.json")
    path.write_text(json.dumps({"about": _ABOUT, "weights": weights}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{path}: {sum(map(len, weights.values()))} weights from {len(requests):,} requests")


def _frame_weights(world: ReadableWorld, requests: Sequence[crosswoz.Request]) -> dict[str, float]:
    """Fitted on real requests, and on generated ones to the library's worlds, which need some of their slots."""
    generated = [(text, wanted.intent) for name in LIBRARY for wanted, text in _generated(WORLDS[name])]
    groups = []
    for worlds, labelled in (([world], [(each.text, each.domain) for each in requests]), (_library(1.0), generated)):
        reader = ChineseReader(worlds, weights={**_START, "confidence": {}})
        for (_, intent), frames in zip(labelled, reader.candidates([text for text, _ in labelled]), strict=True):
            right = [number for number, frame in enumerate(frames) if frame.intent.intent.name == intent]
            if right:
                groups.append(([frame.features for frame in frames], right[0]))
    return fit_softmax(groups)


def _without_slots(world: ReadableWorld) -> Iterator[ReadableWorld]:
    """The world without some of its slots: what requests say of these is to lower the confidence."""
    for seed in range(3):
        rng = random.Random(seed)
        intents = {
            name: replace(intent, slots={key: slot for key, slot in intent.slots.items() if key in intent.required or rng.random() < 0.7})
            for name, intent in world.intents.items()
        }
        yield replace(world, intents=intents)


def _library(share: float) -> list[ReadableWorld]:
    """The library's worlds, with a share of their intents."""
    rng, worlds = random.Random(1), []
    for name in LIBRARY:
        world = readable_world(WORLDS[name], "zh")
        assert world is not None
        worlds.append(replace(world, intents={key: intent for key, intent in world.intents.items() if rng.random() < share}))
    return worlds


def _is_exact(wanted: Frame, reading: Reading) -> bool:
    if (reading.world, reading.intent) != (wanted.world, wanted.intent):
        return False
    return slots_of(WORLDS[reading.world], reading.intent, reading.values) == dict(wanted.slots)


def _generated(world: type[World]) -> Iterator[tuple[Frame, str]]:
    """(frame, request) of each intent that is read."""
    state, rng = world(0), random.Random(world.name)
    for name, intent in read_intents(world).items():
        slots = frozenset(slot.name for slot in intent.slots if slot.is_required or rng.random() < 0.5)
        frame = Frame(world=world.name, intent=name, slots=state.draw_slots(name, slots, rng))
        yield frame, render(world, frame, "zh", rng)


def _without_one(world: ReadableWorld) -> Iterator[ReadableWorld]:
    for left_out in world.intents:
        yield replace(world, intents={name: intent for name, intent in world.intents.items() if name != left_out})


if __name__ == "__main__":
    main()
