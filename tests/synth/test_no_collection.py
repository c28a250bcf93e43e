"""Garbage collection is as it was, whatever happens meanwhile."""

import gc

import pytest

from synth.no_collection import no_collection


@pytest.mark.parametrize("is_on", [True, False])
def test_it_is_paused_and_then_as_it_was(is_on: bool) -> None:
    (gc.enable if is_on else gc.disable)()
    try:
        with pytest.raises(KeyError), no_collection():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == is_on
    finally:
        gc.enable()
