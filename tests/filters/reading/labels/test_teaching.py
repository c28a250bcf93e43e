"""Labelled requests become examples of their intents, without what differs from one to the next; none is measured by itself."""

from __future__ import annotations

from filters.reading.labels.fit import Labelled
from filters.reading.labels.teaching import folds, taught, turns_of
from filters.reading.of_world import readable_world
from synth.worlds import WORLDS


def scrap(number: int) -> Labelled:
    return Labelled(f"please scrap booking B0{number} for us", "hotel", "cancel_reservation", {"reservation": [f"b0{number}"]})


def test_values_are_left_out_so_requests_that_differ_in_them_are_one() -> None:
    assert turns_of(scrap(number) for number in range(10, 20)) == (("hotel", "cancel_reservation", "please scrap booking for us"),)


def test_examples_go_to_their_intent_and_no_other() -> None:
    hotel = readable_world(WORLDS["hotel"])
    assert hotel is not None
    (learned,) = taught([hotel], turns_of([scrap(12)]))
    changed = {name for name, intent in learned.intents.items() if intent.examples != hotel.intents[name].examples}
    assert changed == {"cancel_reservation"}


def test_each_request_is_measured_once_and_never_by_a_reader_that_has_seen_it() -> None:
    examples = [scrap(number) for number in range(10, 60)]
    measured = []
    for others, part in folds(examples):
        assert not {each.text for each in others} & {each.text for each in part}
        measured += part
    assert sorted(each.text for each in measured) == sorted(each.text for each in examples)
