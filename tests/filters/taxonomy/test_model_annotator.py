"""The annotator that asks a language model: its labels are the tree's or `other` with a reason, and a growing tree is labelled by it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from filters.taxonomy.annotate import Annotation
from filters.taxonomy.evolve import EvolveConfig, evolve
from filters.taxonomy.model_annotator import ModelAnnotator
from filters.taxonomy.tree import OTHER, Node, Tree, tree_of
from storage.records import Message
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure
from synth.prompts import prompt
from tests.filters.reading_engines import Labeller
from tests.filters.taxonomy.conftest import bag_of_words, worded

KNOWN = ("buy", "sky", "road")
TREE = tree_of(
    [Node(id="shop", description="shopping"), *(Node(id=f"shop.{stem}", examples=tuple(worded(stem, 9, seed=0))) for stem in KNOWN)]
)


def by_stem(text: str) -> str:
    return next((f"shop.{known}" for known in KNOWN if known in text), OTHER)


def annotated(annotator: ModelAnnotator, texts: Sequence[str], tree: Tree = TREE) -> Annotation:
    return annotator.annotate(texts, bag_of_words(texts), tree)


class Saying:
    """Scripted: says what a function makes of the texts of a request and of how often it was asked before."""

    name = "scripted"

    def __init__(self, say: Callable[[list[str], int], str]) -> None:
        self.say, self.asked = say, list[ChatRequest]()

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.asked += requests
        return [ChatAnswer(Message(role="assistant", content=self._said(one)), "stop") for one in requests]

    def _said(self, request: ChatRequest) -> str:
        texts = [json.loads(line.partition(". ")[2]) for line in str(request.messages[1].content).splitlines()]
        return self.say(texts, len(request.messages) // 2 - 1)


def rows(labels: Sequence[str], **other: object) -> str:
    return json.dumps(
        {"rows": [{"n": number, "label": label, "sure": 0.9, "about": None} | other for number, label in enumerate(labels, 1)]}
    )


def test_texts_get_labels_in_their_order_and_each_is_asked_once() -> None:
    engine = Labeller(by_stem)
    annotator = ModelAnnotator(engine)
    texts = [text for stem in ("sky", "buy", "zoo") for text in worded(stem, 17, seed=4)]
    found = annotated(annotator, [*texts, texts[0]])
    assert found.labels == [*["shop.sky"] * 17, *["shop.buy"] * 17, *[OTHER] * 17, "shop.sky"]
    assert found.open_labels == [*[None] * 34, *["something new"] * 17, None]
    assert (found.confidence == 0.95).all()
    assert len(engine.asked) == 3
    assert annotator.made_by == {
        "engine": "scripted",
        "prompts": {name: prompt(name).version for name in ("label", "name_class")},
        "reasons": {},
    }


def test_a_leaf_with_more_examples_is_no_new_question_but_a_new_leaf_is() -> None:
    engine = Labeller(by_stem)
    annotator, texts = ModelAnnotator(engine), worded("sky", 5, seed=4)
    annotated(annotator, texts)
    fed = [node.model_copy(update={"examples": (*node.examples, "one more")}) if node.id == "shop.sky" else node for node in TREE.nodes]
    annotated(annotator, texts, tree_of(fed))
    assert len(engine.asked) == 1
    annotated(annotator, texts, tree_of([*TREE.nodes, Node(id="zoo", description="animals")]))
    assert len(engine.asked) == 2


def test_without_a_tree_nothing_is_asked() -> None:
    engine = Labeller(by_stem)
    assert annotated(ModelAnnotator(engine), ["a", "b"], Tree(())).labels == [OTHER, OTHER]
    assert not engine.asked


def test_a_label_that_is_no_leaf_is_told_and_may_be_mended() -> None:
    engine = Saying(lambda texts, again: rows(["shop.buy" if again else "shop"] * len(texts)))
    annotator = ModelAnnotator(engine)
    assert annotated(annotator, ["x", "y"]).labels == ["shop.buy"] * 2
    assert "'shop' is not one of" in str(engine.asked[1].messages[-1].content)
    assert not annotator.reasons


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (rows(["shop.moon"]), "no_leaf"),
        (rows(["shop"]), "no_leaf"),
        (rows(["shop.buy"], sure=2), "malformed"),
        (rows(["shop.buy", "shop.buy"]), "malformed"),
        ('{"rows": [{"n": 1, "label": "shop.buy"', "malformed"),
        ("shop.buy", "malformed"),
        ("", "malformed"),
    ],
)
def test_a_text_without_a_usable_label_is_other_with_a_reason_and_spoils_no_other(wrong: str, reason: str) -> None:
    """Given an answer that stays wrong for one text of several, then that one is `other`, not sure at all; the others keep their labels."""
    annotator = ModelAnnotator(Saying(lambda texts, _: wrong if "bad" in texts else rows(["shop.buy"] * len(texts))))
    found = annotated(annotator, ["x", "bad", "y"])
    assert found.labels == ["shop.buy", OTHER, "shop.buy"]
    assert found.confidence.tolist() == [0.9, 0.0, 0.9]
    assert found.open_labels == [None] * 3
    assert dict(annotator.reasons) == {reason: 1}


def test_a_text_that_the_window_has_no_room_for_is_counted_as_that() -> None:
    class Full(Saying):
        def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
            return [replace(one, finish_reason="length") for one in super().chat(requests)]

    annotator = ModelAnnotator(Full(lambda texts, _: "" if "long" in texts else rows(["shop.buy"] * len(texts))))
    assert annotated(annotator, ["x", "long"]).labels == ["shop.buy", OTHER]
    assert dict(annotator.reasons) == {"overflow": 1}


def test_other_weights_in_the_same_folder_are_another_annotator(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    engine, seen = Labeller(by_stem), []
    engine.name = f"hf:{tmp_path}"
    for content in (b"1", b"2", b"1"):
        (tmp_path / "model.safetensors").write_bytes(content)
        seen.append(ModelAnnotator(engine).made_by["engine"])
    assert seen[0] == seen[2] != seen[1] and all(str(one).startswith(f"hf:{tmp_path}@") for one in seen)


def test_rows_that_are_mixed_up_are_no_labels() -> None:
    mixed = json.dumps({"rows": [{"n": number, "label": "shop.buy", "sure": 0.9, "about": None} for number in (2, 1)]})
    engine = Saying(lambda texts, again: rows(["shop.sky"] * len(texts)) if again or len(texts) < 2 else mixed)
    assert annotated(ModelAnnotator(engine), ["x", "y"]).labels == ["shop.sky"] * 2


def test_an_engine_that_fails_labels_nothing() -> None:
    def fail(*_: object) -> str:
        raise EngineFailure("gone")

    annotator = ModelAnnotator(Saying(fail))
    with pytest.raises(EngineFailure, match="gone"):
        annotated(annotator, ["x", "y"])
    assert not annotator.reasons


@pytest.mark.parametrize(
    "said",
    [
        "{}",
        json.dumps({"name": "", "description": "d", "cues": []}),
        json.dumps({"name": "n" * 3000, "description": "d", "cues": []}),
        json.dumps({"name": "weather", "description": "d", "cues": ["unheard of"]}),
    ],
)
def test_a_group_without_a_usable_name_is_unnamed(said: str) -> None:
    class Naming(Saying):
        def _said(self, request: ChatRequest) -> str:
            return said

    annotator = ModelAnnotator(Naming(lambda *_: ""))
    proposal = annotator.propose(["rain tomorrow", "rain today"])
    assert (proposal.name, proposal.cues) == ("unnamed", ())
    assert dict(annotator.reasons) == {"unnamed": 1}


def test_a_tree_grows_by_what_the_model_says() -> None:
    """Given a log with a class that the tree lacks, when the tree evolves with a model, then the model names a class for it and labels its
    rows, and no row of a known class moves."""
    texts = [text for stem in (*KNOWN, "refund") for text in worded(stem, 60, seed=5)]
    classes = np.repeat([*KNOWN, "refund"], 60)

    class Growing(Labeller):
        def _said(self, user: str) -> str:
            if user[0] == "-":
                return json.dumps({"name": "money back", "description": "Asks for a refund.", "cues": ["refunda"]})
            return super()._said(user)

        def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
            shown = str(requests[0].messages[0].content)
            self.label = lambda text: "money_back" if "refund" in text and "- money_back:" in shown else by_stem(text)
            return super().chat(requests)

    evolved = evolve(texts, bag_of_words(texts), ModelAnnotator(Growing(by_stem)), TREE, EvolveConfig(min_group=20))
    labels = np.array(evolved.annotation.labels)
    assert "money_back" in {leaf.id for leaf in evolved.tree.leaves}
    assert (labels[classes == "refund"] == "money_back").all()
    assert all((labels[classes == stem] == f"shop.{stem}").all() for stem in KNOWN)
