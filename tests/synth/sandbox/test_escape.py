"""The escape suite: programs that try to get out of a box, to harm what is beside it, or to outlive it.

`synth/sandbox/__init__.py` lists what is covered and what is not. Each act is tried on each provider, and has a control that succeeds once
the one protection is gone.
What a kernel refuses even without our protection is run, listed as skipped with the reason, and not counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.synth.conftest import PROVIDERS, provider_of
from tests.synth.sandbox.arena import Arena
from tests.synth.sandbox.escape_programs import ESCAPES, Escape

pytestmark = pytest.mark.docker

FULL_NAME = {"docker": "docker", "bwrap": "bubblewrap"}
CASES = [
    pytest.param(which, escape, id=f"escape-{which}-{escape.id}")
    for which in PROVIDERS
    for escape in ESCAPES
    if escape.only in ("", FULL_NAME[which])
]


@pytest.fixture(scope="module")
def arenas() -> Iterator[dict[str, Arena]]:
    """One arena a provider, made when it is first needed."""
    made: dict[str, Arena] = {}
    yield made
    for arena in made.values():
        arena.__exit__()


@pytest.fixture
def arena(which: str, arenas: dict[str, Arena], request: pytest.FixtureRequest) -> Arena:
    provider = provider_of(which, request)
    if which not in arenas:
        arenas[which] = Arena(provider)
    return arenas[which]


@pytest.mark.slow
@pytest.mark.parametrize(("which", "escape"), CASES)
def test_a_program_is_contained_and_only_its_protection_holds_it(which: str, escape: Escape, arena: Arena) -> None:
    if escape.group and not arena.limits_whole_box:
        pytest.skip("no control group can be made here: memory is limited per process only")

    attacked = arena.attack(escape)

    assert not attacked.harmed, attacked.said
    assert not attacked.damage

    control = arena.control(escape)

    why = escape.refused.get(FULL_NAME[which]) or escape.refused.get("*")
    if not control.harmed and why:
        pytest.skip(f"not counted: {why}")
    assert control.harmed, f"the control did no harm either, so the case shows nothing: {control.said}"


@pytest.mark.parametrize("which", PROVIDERS)
def test_there_are_programs_enough_of_kinds_enough(which: str) -> None:
    mine = [escape for escape in ESCAPES if escape.only in ("", FULL_NAME[which]) and not escape.refused]

    assert len(mine) >= 40
    assert len({escape.kind for escape in mine}) >= 20
