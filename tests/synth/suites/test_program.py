"""The differences of two states: what the program of a suite sends in place of the states."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from synth.suites.program import _differences

SCALARS = st.sampled_from([0, 1, None, "a", True])
STATES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, (dict, list)) or not value:
        return {path: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {name: leaf for key, item in items for name, leaf in leaves(item, f"{path}/{key}" if path else str(key)).items()}


@given(STATES, STATES)
def test_differences_are_those_of_the_leaves_by_their_paths(first: Any, second: Any) -> None:
    before, now = leaves({"at": first}), leaves({"at": second})
    missing = object()
    changed = [path for path in before.keys() | now.keys() if before.get(path, missing) != now.get(path, missing)]
    assert _differences({"at": first}, {"at": second}) == {path: now.get(path) for path in changed}


def test_a_row_that_is_gone_or_new_is_seen() -> None:
    assert _differences({"rows": [1, 2]}, {"rows": [1]}) == {"rows/1": None}
    assert _differences({"rows": {}}, {"rows": {"x": {"y": 1}}}) == {"rows": None, "rows/x/y": 1}
    assert _differences({"rows": {"x": 1}}, {"rows": {"x": 1}}) == {}
