"""Which worlds are read by the parser, and which by the reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from filters.funnel import FunnelConfig, curate
from filters.lexicon_worlds import lexicon_worlds, reader_worlds
from storage.store import Store
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.writing.new_spec import new_spec


@pytest.fixture(scope="module")
def chinese() -> Iterator[str]:
    """The name of a world that speaks Chinese alone."""
    world = compile_spec(parse_text(new_spec(("zh",))))
    WORLDS.register(world)
    yield world.name
    WORLDS.forget(world.name)


def test_worlds_are_told_by_their_lexicon(chinese: str) -> None:
    names = ("city", "retail", "hotel", chinese)
    assert [world.name for world in lexicon_worlds(names)] == ["city", "retail"]
    assert reader_worlds(names) == ("city", "hotel", chinese)  # the city's places may have names that no lexicon lists
    assert reader_worlds(None) == ()


def test_an_english_log_is_curated_where_no_world_speaks_english(chinese: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"text": f"please lend me tool t{n:03d} for two days"}) + "\n" for n in range(40)))
    result = curate(Store(tmp_path / "store"), [log], FunnelConfig(worlds=(chinese,), ungrounded=False))
    assert not result.task_ids
