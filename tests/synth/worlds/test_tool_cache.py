"""The tool cache: equal calls have one key, are made once, and a frozen cache makes none."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import BadInput
from storage.records import Tool
from synth.worlds.base import Observation
from synth.worlds.tool_cache import BUCKET_S, FrozenMiss, ToolCache, cache_key, normalise_arguments, time_bucket

SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer", "default": 10},
        "near": {"type": "object", "properties": {"lat": {"type": "number"}, "radius_m": {"type": "number", "default": 500}}},
    },
}
SEARCH = Tool(name="search", description="", parameters=SCHEMA, server="maps", domain="maps")
BOOK = SEARCH.model_copy(update={"name": "book", "changes_state": True})
SCALARS = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=8
)
ARGUMENTS = st.dictionaries(st.sampled_from(["query", "limit", "near", "more"]), VALUES, max_size=4)


class Counted:
    """A tool's run that counts how often it is made; answers with its count."""

    def __init__(self, is_error: bool = False, size: int = 0) -> None:
        self.made, self._is_error, self._size = 0, is_error, size

    def __call__(self) -> Observation:
        self.made += 1
        return Observation(json.dumps({"made": self.made, "pad": "x" * self._size}), is_error=self._is_error)


def ask(cache: ToolCache, run: Counted, query: str = "q", **more: Any) -> Observation:
    return cache.call(SEARCH, 1, {"query": query}, run, **more)


@given(ARGUMENTS)
def test_arguments_that_mean_the_same_have_one_key(arguments: dict[str, Any]) -> None:
    key = cache_key(SEARCH, 1, arguments)

    assert cache_key(SEARCH, 1, dict(reversed(arguments.items()))) == key
    assert cache_key(SEARCH, 1, {"limit": 10, **arguments}) == key
    assert cache_key(SEARCH, 1, normalise_arguments(arguments, SCHEMA)) == key
    assert normalise_arguments(normalise_arguments(arguments, SCHEMA), SCHEMA) == normalise_arguments(arguments, SCHEMA)
    assert cache_key(SEARCH, 2, arguments) != key
    assert cache_key(SEARCH, 1, arguments, "weather:7") != key
    assert cache_key(BOOK, 1, arguments) != key


@given(ARGUMENTS, ARGUMENTS)
def test_arguments_that_differ_have_different_keys(one: dict[str, Any], other: dict[str, Any]) -> None:
    is_same = json.dumps(normalise_arguments(one, SCHEMA), sort_keys=True) == json.dumps(normalise_arguments(other, SCHEMA), sort_keys=True)

    assert (cache_key(SEARCH, 1, one) == cache_key(SEARCH, 1, other)) == is_same


def test_floats_count_to_five_places_and_defaults_at_every_level() -> None:
    assert normalise_arguments({"near": {"lat": 39.9000001}}, SCHEMA) == {"limit": 10, "near": {"lat": 39.9, "radius_m": 500}}
    assert normalise_arguments({"near": {"lat": 39.90001}}, SCHEMA) != normalise_arguments({"near": {"lat": 39.9}}, SCHEMA)


def test_a_whole_float_is_an_integer_where_a_number_is_asked_for_and_nowhere_else() -> None:
    def key(**arguments: Any) -> str:
        return cache_key(SEARCH, 1, arguments)

    assert key(near={"lat": 5.0}) == key(near={"lat": 5})
    assert key(limit=5.0) != key(limit=5)
    assert key(more=5.0) != key(more=5)
    assert key(limit=10) == key()


def test_a_call_is_made_once_and_another_scope_is_another_call() -> None:
    cache, run = ToolCache(), Counted()

    answers = [ask(cache, run), ask(cache, run), ask(cache, run, scope="s"), ask(cache, run, query="r")]

    assert answers[0] == answers[1]
    assert run.made == 3
    report = cache.report()
    assert (report.hits, report.misses, report.calls_saved, report.entries) == (1, 3, 1, 3)


def test_tools_that_change_state_go_past() -> None:
    cache, run = ToolCache(), Counted()

    for _ in range(3):
        cache.call(BOOK, 1, {"query": "q"}, run)

    assert run.made == 3
    assert (cache.report().bypassed, cache.report().entries) == (3, 0)


def test_errors_are_kept_for_a_minute() -> None:
    now = [100.0]
    cache, run = ToolCache(clock=lambda: now[0]), Counted(is_error=True)

    ask(cache, run)
    now[0] = 159.9
    ask(cache, run)
    before = run.made
    now[0] = 160.0
    ask(cache, run)

    assert (before, run.made) == (1, 2)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3_000)), max_size=60), st.integers(500, 6_000))
def test_the_bytes_are_never_exceeded_and_the_latest_answer_stays(asked: list[tuple[int, int]], max_bytes: int) -> None:
    cache = ToolCache(max_bytes=max_bytes)
    for query, size in asked:
        run = Counted(size=size)
        answer = ask(cache, run, query=str(query))

        assert cache.report().size_bytes <= max_bytes
        if len(answer.content) + 200 <= max_bytes:
            again = Counted()
            assert ask(cache, again, query=str(query)) == answer
            assert again.made == 0


def test_what_was_asked_longest_ago_makes_room() -> None:
    cache, runs = ToolCache(max_bytes=3 * 1_300), {name: Counted(size=1_000) for name in "abcd"}
    for name in "abcad":
        ask(cache, runs[name], query=name)

    for name in "acd":
        ask(cache, runs[name], query=name)

    assert {name: run.made for name, run in runs.items()} == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert cache.report().evicted == 1
    ask(cache, runs["b"], query="b")
    assert runs["b"].made == 2


def test_threads_that_ask_the_same_wait_for_one_call() -> None:
    cache, started, go, made = ToolCache(), threading.Event(), threading.Event(), []

    def slow() -> Observation:
        started.set()
        assert go.wait(30)
        made.append(1)
        return Observation("{}")

    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(cache.call, SEARCH, 1, {"query": "q"}, slow) for _ in range(8)]
        assert started.wait(30)
        while cache.report().shared < 7:
            threading.Event().wait(0.001)
        other = cache.call(SEARCH, 1, {"query": "other"}, lambda: Observation("[]"))
        go.set()
        answers = {each.result(30).content for each in asked}

    assert len(made) == 1
    assert answers == {"{}"}
    assert other.content == "[]"
    assert cache.report().calls_saved == 7


def test_a_call_that_raises_raises_and_is_made_again() -> None:
    cache, run = ToolCache(), Counted()

    def failing() -> Observation:
        raise RuntimeError("down")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="down"):
            cache.call(SEARCH, 1, {"query": "q"}, failing)

    assert json.loads(ask(cache, run).content)["made"] == 1


def test_a_frozen_cache_answers_from_its_snapshot_alone(tmp_path: Path) -> None:
    cache, run, path = ToolCache(), Counted(), tmp_path / "snapshot"
    answer = ask(cache, run, query="line\nbreak \u2028 北京")
    ask(cache, Counted(is_error=True), query="bad")
    kept = cache.save(path)

    frozen = ToolCache.frozen(path)

    assert kept == 1
    assert ask(frozen, run, query="line\nbreak \u2028 北京") == answer
    for query in ("bad", "new"):
        with pytest.raises(FrozenMiss, match="no answer of search to"):
            ask(frozen, run, query=query)
    assert run.made == 1


def test_a_frozen_cache_makes_a_call_only_when_allowed_and_learns_nothing(tmp_path: Path) -> None:
    ToolCache().save(tmp_path / "empty")
    frozen, run = ToolCache.frozen(tmp_path / "empty", may_call=True), Counted()

    ask(frozen, run)
    ask(frozen, run)

    assert run.made == 2
    assert (frozen.report().unfrozen, frozen.report().entries) == (2, 0)


@given(st.dictionaries(st.text(max_size=5), st.text(st.characters(exclude_categories=("Cs",)), max_size=20), max_size=5))
def test_equal_answers_give_equal_snapshots(tmp_path_factory: pytest.TempPathFactory, answers: dict[str, str]) -> None:
    folder = tmp_path_factory.mktemp("snapshots")
    for name, pairs in (("one", list(answers.items())), ("other", list(reversed(answers.items())))):
        cache = ToolCache()
        for query, content in pairs:
            cache.call(SEARCH, 1, {"query": query}, lambda content=content: Observation(content))
        cache.save(folder / name)

    assert (folder / "one").read_bytes() == (folder / "other").read_bytes()
    frozen = ToolCache.frozen(folder / "one")
    assert {query: ask(frozen, Counted(), query=query).content for query in answers} == answers


@pytest.mark.parametrize("damage", ["cut", "header", "line", "not there"])
def test_a_damaged_snapshot_is_refused(tmp_path: Path, damage: str) -> None:
    cache, path = ToolCache(), tmp_path / "snapshot"
    for query in "ab":
        ask(cache, Counted(), query=query)
    cache.save(path)
    lines = path.read_text().splitlines(keepends=True)
    spoilt = {"cut": lines[:-1], "header": ["{}\n", *lines[1:]], "line": [*lines[:2], "[1]\n"]}
    if damage == "not there":
        path.unlink()
    else:
        path.write_text("".join(spoilt[damage]))

    with pytest.raises(BadInput, match="snapshot"):
        ToolCache.frozen(path)


def test_time_buckets_turn_when_the_source_does() -> None:
    assert {time_bucket("weather", 3_600.0 * 5 + second) for second in (0.0, 1_800.0, 3_599.9)} == {"weather:5"}
    assert time_bucket("weather", 3_600.0 * 6) == "weather:6"
    assert dict(BUCKET_S) == {"places": 2_592_000, "timetable": 86_400, "weather": 3_600, "traffic": 300}


def test_percentiles_are_of_the_calls() -> None:
    ticks = iter(range(1_000))
    durations = iter([1.0] * 90 + [5.0] * 10)
    now = [0.0]

    def timer() -> float:
        if next(ticks) % 2:
            now[0] += next(durations)
        return now[0]

    cache = ToolCache(timer=timer)
    for n in range(100):
        ask(cache, Counted(), query=str(n))

    assert (cache.report().p50_ms, cache.report().p95_ms) == (1_000.0, 5_000.0)


def test_the_example_of_the_documentation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[3] / "docs" / "worlds.md").read_text(encoding="utf-8")
    example = text.partition("## Costly tools")[2].partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)

    names: dict[str, Any] = {}
    exec(compile(example, "docs/worlds.md", "exec", dont_inherit=True), names)

    assert names["answers"][0] == names["answers"][2] != names["answers"][1]
    assert (names["report"].misses, names["report"].hits) == (2, 1)
    assert names["weather"](names["frozen"], "Paris", 0.0) == names["answers"][1]
    with pytest.raises(FrozenMiss):
        names["weather"](names["frozen"], "Paris", 3_600.0)
