"""New specs: a copy of a library world keeps its comments, gets a name of its own, and compiles in the languages that are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import BadInput
from synth.tasks.assessment import assess
from synth.text.claims import has_chinese
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.language.yaml_text import parse_file, parse_text
from synth.worlds.declarative.library_worlds import library_specs
from synth.writing.new_spec import copied_worlds, new_spec


@pytest.mark.parametrize("like", copied_worlds())
def test_every_world_of_the_library_has_an_english_copy(like: str) -> None:
    text = new_spec(["en"], like, Path("Our business.yaml"))
    assert not has_chinese(text)
    assert text.count("#") >= 2
    assert "domain: our_business\nlanguages: [en]" in text
    world = compile_spec(parse_text(text))
    assert world.languages == ("en",)
    assert assess(world, 40, seed=0).share > 0.9


def test_a_copy_in_both_languages_differs_from_its_world_in_name_and_head_alone() -> None:
    text = new_spec(["en", "zh"], "hotel", Path("hotel.yaml"))
    assert "domain: my_hotel\n" in text
    raw, source = parse_text(text), parse_file(library_specs()["hotel"])
    assert {key for key in raw if raw[key] != source.get(key)} == {"domain", "languages"}
    assert compile_spec(parse_text(new_spec(["zh"], "hotel"))).languages == ("zh",)


@pytest.mark.parametrize(
    ("like", "reason"), [("retail", "has its requests in a file"), ("htel", "did you mean 'hotel'"), ("city", "is no world of the library")]
)
def test_what_cannot_be_copied_is_refused(like: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        new_spec(["en"], like)
