"""Agreement measures something: who is right has it, who answers at random has not, and who does not answer is in no rate."""

from __future__ import annotations

import random
from functools import partial

import pytest

from filters.grounding.ground_model import read
from filters.lexicon_worlds import lexicon_worlds
from filters.taxonomy.agreement import Agreement, Known, generate_requests, measure_frames, measure_labels, parse_frames
from filters.taxonomy.built_in import built_in
from filters.taxonomy.model_annotator import ModelAnnotator
from filters.taxonomy.tree import OTHER
from synth.engines.base import EngineFailure
from synth.intervals import wilson
from tests.filters.reading_engines import Labeller, Scripted, leaf_by_text, of_frame, reading
from tests.filters.taxonomy.conftest import bag_of_words


@pytest.fixture(scope="module")
def asked() -> list[Known]:
    return generate_requests(200, seed=4)


def test_the_sample_is_of_all_intents_and_both_languages_and_some_is_nothing(asked: list[Known]) -> None:
    assert asked == generate_requests(200, seed=4) != generate_requests(200, seed=5)
    assert len({one.norm for one in asked}) == len(asked) > 180
    assert len({(one.frame.world, one.frame.intent) for one in asked if one.frame}) >= 75
    assert 25 <= sum(one.frame is None for one in asked) <= 40
    assert 30 <= sum(any("\u4e00" <= letter <= "\u9fff" for letter in one.norm) for one in asked) <= 100


def test_the_parser_reads_its_own_wordings(asked: list[Known]) -> None:
    found = measure_frames(parse_frames, asked)
    assert found.of == len(asked)
    assert found.rate >= 0.98
    assert found.interval == wilson(found.right, found.of)


def test_a_reader_that_is_right_agrees_and_one_that_answers_for_another_text_does_not(asked: list[Known]) -> None:
    right = {one.norm: of_frame(one.frame) for one in asked}
    assert measure_frames(partial(read, Scripted(right), worlds=lexicon_worlds()), asked) == Agreement(len(asked), len(asked))
    answers = list(right.values())
    random.Random(0).shuffle(answers)
    mixed = measure_frames(partial(read, Scripted(dict(zip(right, answers, strict=True))), worlds=lexicon_worlds()), asked)
    assert mixed.rate < 0.2  # of what asks for nothing, most of which gets no frame this way either
    assert sum(mixed.misses.values()) == mixed.of - mixed.right and mixed.misses["invented_value"] > 50


def test_misses_are_told_apart() -> None:
    told = {
        "close order o17": reading("retail/order_price", order="o17"),
        "close order o18": reading("none", "missing_tool"),
        "close order o19": EngineFailure("filtered"),
        "close order o20": reading("retail/close_order", order="o20"),
        "o21 is a fine number": reading("retail/close_order", order="o21"),
    }
    frames = parse_frames([text.replace("o21 is a fine number", "close order o21") for text in told])
    asked = [Known(text, None if "fine" in text else one.frame) for text, one in zip(told, frames, strict=True)]
    assert measure_frames(partial(read, Scripted(told), worlds=lexicon_worlds()), asked) == Agreement(
        1, 4, {"another_frame": 1, "frame_of_nothing": 1, "missing_tool": 1}, unanswered=1
    )


def test_labels_that_are_right_agree_and_shuffled_ones_do_not(asked: list[Known]) -> None:
    tree = built_in()
    leaves = leaf_by_text(asked, tree)
    right = measure_labels(ModelAnnotator(Labeller(leaves.__getitem__)), asked, bag_of_words, tree)
    assert right == Agreement(len(leaves), len(leaves))
    assert right.interval[0] > 0.97
    drawn = random.Random(0).sample(list(leaves.values()), len(leaves))
    shuffled = measure_labels(ModelAnnotator(Labeller(dict(zip(leaves, drawn, strict=True)).__getitem__)), asked, bag_of_words, tree)
    assert shuffled.interval[1] < 0.3
    strange = measure_labels(ModelAnnotator(Labeller(lambda _: OTHER)), asked, bag_of_words, tree)
    assert strange == Agreement(0, len(leaves), {"other": len(leaves)})


def test_nothing_has_no_rate() -> None:
    assert (Agreement(0, 0).rate, Agreement(0, 0).interval) == (0.0, (0.0, 1.0))
