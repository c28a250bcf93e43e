"""The benchmark of the controller, small: its arms end at the same count, and steering shows in what it measures."""

from collections.abc import Callable

import pytest

from benchmarks.worlds_sections import evolution
from benchmarks.worlds_sections.evolution import STEERING_KEYS, Arm, clusters_by_domain, steered, steering, unsteered


@pytest.mark.slow
def test_both_arms_are_measured_alike_and_the_controller_spreads_domains_and_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[object, Arm]] = []

    def kept(arm: Callable[..., Arm]) -> Callable[..., Arm]:
        def make(*arguments: object) -> Arm:
            made.append((arguments, arm(*arguments)))
            return made[-1][1]

        return make

    for arm in (steered, unsteered):
        monkeypatch.setattr(evolution, arm.__name__, kept(arm))
    figures = steering(("retail", "city"), trajectories=60, seeds=(0,))
    (asked, ours), (control_asked, control) = made

    assert asked == control_asked == (("retail", "city"), 60, 0)

    assert set(figures) == set(STEERING_KEYS)
    assert figures["eff_modes_ratio"] == ours.modes / control.modes > 1
    assert figures["eff_domains_ratio"] == ours.domains / control.domains > 1
    assert sum(ours.bands) == 1
    assert 0 < figures["yield_ratio"] <= 1.1


def test_every_domain_has_clusters_that_serve_it() -> None:
    found = clusters_by_domain(("retail", "city"))

    assert set(found) == {"retail", "map", "travel", "weather", "information"}
    assert all(found.values())
