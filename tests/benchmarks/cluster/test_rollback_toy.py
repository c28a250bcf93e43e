"""The toy of IPA's benchmark: where no whole chain succeeds by chance, rollback learns it and plain policy gradient does not."""

from __future__ import annotations

import pytest

from benchmarks.cluster.ipa import KEYS, STARTS, toy_success


def test_rollback_learns_a_chain_that_plain_policy_gradient_never_sees_through() -> None:
    plain, parallel, rollback = (toy_success(start, seed=0) for start in STARTS)
    assert plain == pytest.approx(0.25**5, abs=0.02)
    assert plain < parallel < rollback
    assert rollback > 0.9
    assert toy_success("rollback", seed=0) == rollback


def test_every_comparison_has_its_interval() -> None:
    assert {f"{key}{end}" for key in ("ipa_minus_grpo", "rollback_minus_plain") for end in ("", "_lo95")} < set(KEYS)
