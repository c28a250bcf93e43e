"""What a store remembers of the flows that made it."""

from __future__ import annotations

from pathlib import Path

from storage.configurations import FlowSettings, add_configurations, read_configurations
from storage.store import Store

BAKERY = FlowSettings("synthesize", ("bakery@1a2b3c4d",), ("en",), {"accepted": 40})
RETAIL = FlowSettings("train", ("retail",), ("en",), {"seed": 0})


def test_settings_are_read_in_the_order_in_which_flows_used_them(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    add_configurations(store, [BAKERY])
    add_configurations(store, [RETAIL, BAKERY])
    assert read_configurations(store) == [BAKERY, RETAIL]


def test_a_flow_that_goes_back_to_earlier_settings_is_remembered_once_more(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    library = FlowSettings("train", ("library",), ("en",), {"seed": 0})
    for settings in (RETAIL, library, RETAIL, RETAIL):
        add_configurations(store, [settings])
    assert read_configurations(store) == [RETAIL, library, RETAIL]


def test_equal_work_in_one_commit_or_two_gives_equal_stores(tmp_path: Path) -> None:
    at_once, in_turn = Store(tmp_path / "a"), Store(tmp_path / "b")
    add_configurations(at_once, [BAKERY, RETAIL])
    for settings in (BAKERY, RETAIL, RETAIL):
        add_configurations(in_turn, [settings])
    assert at_once.content_hash() == in_turn.content_hash()
