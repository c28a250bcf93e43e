"""Shapes of domains: independent of nouns, order and wording, but not of actions and relations."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.generate import generate
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.library_worlds import library_specs
from synth.writing.shapes import shape_of

STARTER = Path(__file__).parents[3] / "synth" / "worlds" / "declarative" / "starter.yaml"


def starter() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load(STARTER.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    return loaded


def shape(spec: Any) -> str:
    return shape_of(compile_spec(spec))


def test_domains_that_differ_only_in_nouns_have_one_shape() -> None:
    """Given a domain in which every tool becomes a vehicle and every member a driver, then it is the same domain."""
    text = STARTER.read_text(encoding="utf-8")
    text = (
        re.sub(r"(?<!-)\btool(?=\b|_(?!library))", "vehicle", text)
        .replace("return_tool", "return_vehicle")
        .replace("lend_tool", "lend_vehicle")
    )
    renamed = yaml.load(re.sub(r"\bmember\b", "driver", text), Loader=yaml.BaseLoader)
    assert "vehicle" in renamed["entities"] and "driver" in renamed["entities"]
    assert shape(renamed) == shape(starter())


def test_order_and_words_do_not_matter() -> None:
    spec = starter()
    spec["actions"] = dict(reversed(spec["actions"].items()))
    spec["entities"]["loan"]["fields"] = dict(reversed(spec["entities"]["loan"]["fields"].items()))
    spec["entities"]["loan"]["noun"] = "lending slip / 借据"
    assert shape(spec) == shape(starter())


def _another_action(spec: dict[str, Any]) -> None:
    spec["actions"]["mend_tool"] = {
        "verb": "mend / 修理",
        "on": "tool",
        "needs": [{"if": "tool.status == broken"}],
        "sets": {"tool.status": "free"},
    }


def _another_parameter(spec: dict[str, Any]) -> None:
    spec["actions"]["change_level"]["takes"]["days"] = {"type": "integer", "min": "1", "max": "9", "label": "days / 天数"}


def _another_relation(spec: dict[str, Any]) -> None:
    spec["entities"]["member"]["fields"]["branch"] = {"type": "ref", "to": "branch"}


def _another_value(spec: dict[str, Any]) -> None:
    spec["entities"]["tool"]["fields"]["kind"]["values"]["plane"] = "plane / 刨子"


def _no_search(spec: dict[str, Any]) -> None:
    spec["entities"]["member"]["tools"] = ["get"]


@pytest.mark.parametrize("change", [_another_action, _another_parameter, _another_relation, _another_value, _no_search])
def test_a_changed_action_or_relation_is_another_shape(change: Callable[[dict[str, Any]], None]) -> None:
    spec = copy.deepcopy(starter())
    change(spec)
    assert shape(spec) != shape(starter())


def test_what_only_the_inside_knows_is_no_part_of_a_shape() -> None:
    spec = starter()
    spec["actions"]["renew_loan"]["rules"]["renewal_limit"] |= {
        "if": "loan.renewals < 3",
        "words": "At most 3 times. / 最多3次。",
        "answer": "3",
    }
    spec["entities"]["tool"]["rows"] = "120"
    assert shape(spec) == shape(starter())


def test_shipped_and_generated_domains_are_of_many_shapes() -> None:
    shapes = [shape_of(WORLDS[name]) for name in library_specs()]
    for seed in range(40):
        with suppress(SpecError):
            shapes.append(shape(generate(seed)))
    assert len(shapes) >= 46
    assert len(set(shapes)) >= len(shapes) - 1
