"""English and Chinese as people write them: plurals, participles, measure words, and answers whose words are no rivals of themselves."""

from __future__ import annotations

import copy
from importlib.resources import files

import pytest

from synth.worlds.declarative.common_names import participle_of, plural_of
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.generate import generate
from synth.worlds.declarative.intents.base import answer_fact
from synth.worlds.declarative.language.resolve import resolve
from synth.worlds.declarative.language.yaml_text import parse_text

STARTER = parse_text(files("synth.worlds.declarative").joinpath("starter.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("verb", "done"),
    [("unfreeze", "unfrozen"), ("tag _ as late", "tagged _ as late"), ("reset", "reset"), ("rebook", "rebooked"), ("release", "released"),
     ("open", "opened"), ("check in", "checked in"), ("carry", "carried"), ("return", "returned"), ("ship", "shipped"), ("quit", "quit"),
     ("relay", "relayed"), ("win", "won"), ("dig", "dug"), ("hit", "hit"), ("bid for", "bid for"), ("sit", "sat"), ("spin", "spun")],
)  # fmt: skip
def test_participles(verb: str, done: str) -> None:
    assert participle_of(verb) == done


@pytest.mark.parametrize(
    ("noun", "plural"), [("door pass", "door passes"), ("toy library", "toy libraries"), ("shelf", "shelves"), ("key", "keys")]
)
def test_plurals(noun: str, plural: str) -> None:
    assert plural_of(noun) == plural


def test_rows_are_counted_with_their_measure_word() -> None:
    raw = copy.deepcopy(STARTER)
    raw["entities"]["tool"]["measure"] = "把"
    wordings = compile_spec(raw).intents["find_tool"].wordings()
    assert any(text.endswith("是哪把") for text in wordings["zh"])
    assert {entity["measure"] for seed in range(20) for entity in generate(seed)["entities"].values()} > {"位", "张", "件"}


def test_a_word_of_the_label_is_no_rival_of_what_is_told() -> None:
    """Given a choice one of whose values stands in its own label, then an answer that says the label is not taken for that value."""
    raw = copy.deepcopy(STARTER)
    urgency = {"type": "choice", "label": "urgency / 紧急程度", "values": {"low": "low / 低", "high": "high / 紧急"}}
    raw["entities"]["loan"]["fields"]["urgency"] = urgency
    raw["actions"]["lend_tool"]["creates"]["loan"]["urgency"] = "low"
    domain = resolve(raw)
    assert answer_fact(domain, domain.entities["loan"].fields["urgency"], "low").rivals == ("high",)
