"""The controller of P4: what it prefers, what it gives up on, when it stops and when it shouts."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.blueprints.cell import BANDS, FAMILIES, Cell, mode_family
from synth.blueprints.diversity import domain_diversity
from synth.intervals import wilson
from synth.run.evolution.controller import Controller, EvolutionConfig, Report


@pytest.mark.parametrize(
    ("coarse", "family"),
    [
        ("N", "N"),
        ("A>C>F", "A>C"),
        ("A>N", "other"),
        ("C+>F", "C>F"),
        ("C>S+>V>F", "C>S>V"),
        ("C>S>F>C>F", "C>S>F"),
        ("P>S+>F", "P>S"),
        ("", "other"),
    ],
)
def test_family_is_the_prefix_with_runs_collapsed(coarse: str, family: str) -> None:
    assert mode_family(coarse) == family


def test_wilson_gives_published_bounds() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


@given(st.lists(st.tuples(st.integers(0, 77), st.booleans()), max_size=60))
def test_probabilities_sum_to_one_and_leave_no_cell_out(events: list[tuple[int, bool]]) -> None:
    controller = Controller(("a", "b"))
    for index, is_hit in events:
        cell = controller.cells[index]
        controller.record(Report(cell, "C>F", cell if is_hit else None))

    probabilities = controller.probabilities()

    assert sum(probabilities.values()) == pytest.approx(1)
    assert min(probabilities.values()) >= 0.1 / len(controller.cells) - 1e-12


def test_what_is_rare_scores_higher_on_every_axis() -> None:
    controller = Controller(("a", "b"))
    common = Cell("a", "C>F", "low")
    for _ in range(20):
        controller.record(Report(common, "C>F", common))

    assert controller.score(Cell("b", "C>F", "low")) > controller.score(common)
    assert controller.score(Cell("a", "P>F", "low")) > controller.score(common)
    assert controller.score(Cell("a", "C>F", "mid")) > controller.score(common)


def test_a_domain_of_more_weight_is_asked_for_more_often_and_raises_no_alarm() -> None:
    """Given one of nine domains with a weight of 4, when all that is asked for is accepted, then it has about twice the share of each
    other: less than its weight, because cells that were tried often enough have their own success rate, which is the more careful one."""
    domains = tuple("abcdefghi")
    for weights, low, high in ({"c": 4.0}, 0.2, 4 / 12), ({}, 0.06, 0.15):
        controller, rng = Controller(domains, weights=weights), random.Random(0)
        for _ in range(12):
            for draw in controller.draw_round(rng, 50):
                controller.record(Report(draw.cell, "C>F", draw.cell))
            controller.end_round()
        accepted = Counter({domain: controller.tries(domain) for domain in domains})
        assert low < accepted["c"] / accepted.total() < high
        assert max(accepted.values()) == accepted["c"] or not weights
        assert not [alarm for alarm in controller.alarms() if alarm.startswith("domain")]


def test_a_cell_that_never_works_loses_its_turn_and_keeps_a_floor() -> None:
    controller = Controller(("a", "b"))
    dead = Cell("a", "C>V", "high")
    before = controller.probabilities()[dead]
    for _ in range(10):
        controller.record(Report(dead))

    assert controller.feasibility(dead) == controller.config.least_feasibility
    assert 0 < controller.probabilities()[dead] < before
    assert controller.failures(dead) == 10


def test_feasibility_is_the_prior_until_tried_then_the_lesser_of_domain_and_mode_until_the_cell_has_its_own() -> None:
    controller = Controller(("a", "b"))
    cell = Cell("a", "C>F", "low")
    assert controller.feasibility(cell) == 0.5
    for _ in range(5):
        controller.record(Report(Cell("a", "P>F", "low"), "P>F", Cell("a", "P>F", "low")))
    assert controller.feasibility(cell) == pytest.approx(min(0.5, wilson(5, 5)[0]))
    for _ in range(5):
        controller.record(Report(cell, "C>F", cell))
    assert controller.feasibility(cell) == pytest.approx(wilson(5, 5)[0])


def test_a_draw_says_what_its_terms_were_and_what_its_feasibility_rests_on() -> None:
    controller = Controller(("a", "b"), EvolutionConfig(uniform_share=1.0))
    good = Cell("a", "C>F", "low")
    for _ in range(6):
        controller.record(Report(good, "C>F", good))
        controller.record(Report(Cell("b", "C>F", "low"), was_planned=True))
    draws = {draw.cell: draw for draw in (controller.draw(random.Random(seed)) for seed in range(600))}

    assert set(draws) == set(controller.cells)
    for cell, draw in draws.items():
        assert draw.domain_bits + draw.family_bits + draw.band_deficit == pytest.approx(controller.score(cell))
        assert draw.feasibility == controller.feasibility(cell)
        assert draw.probability == pytest.approx(1 / 78)
        assert sorted(draw.else_families) == sorted(controller.families)
    assert sum(draw.else_families[-1] == "C>F" for draw in draws.values()) > 0.9 * len(draws), "what is common comes last"
    assert draws[good].measured_on == draws[Cell("b", "C>F", "low")].measured_on == "cell"
    assert draws[Cell("b", "P>F", "high")].measured_on == "domain"
    assert draws[Cell("a", "P>F", "high")].measured_on == "prior"


@pytest.mark.parametrize("hopeless", ["none", "high"])
def test_the_bands_of_what_is_accepted_hold_their_shares_and_one_that_cannot_be_had_starves_no_other(hopeless: str) -> None:
    controller, rng = Controller(tuple(f"d{i}" for i in range(40))), random.Random(3)
    for _ in range(12):
        for draw in controller.draw_round(rng, 50):
            works = draw.cell.band != hopeless and (draw.cell.family not in FAMILIES[:6] or draw.cell.band == "low") and rng.random() < 0.9
            controller.record(Report(draw.cell, draw.cell.family, draw.cell if works else None))
        controller.end_round()
    shares = controller.band_shares()

    if hopeless == "none":
        assert all(abs(shares[band] - target) <= 0.03 for band, target in zip(BANDS, controller.config.band_shares, strict=True))
    else:
        assert min(shares["low"], shares["mid"]) > 0.2


def test_a_round_over_hundreds_of_domains_asks_for_each_about_once() -> None:
    domains = tuple(f"d{i:03}" for i in range(500))
    asked = Counter(draw.cell.domain for draw in Controller(domains).draw_round(random.Random(0), 500))

    assert max(asked.values()) <= 6
    assert len(asked) > 300


def toy(config: EvolutionConfig, seed: int) -> float:
    """H_dom in bits of 500 accepted draws over 20 domains, with a native skew where nobody steers."""
    domains = tuple(f"d{i:02}" for i in range(20))
    controller, rng = Controller(domains, config), random.Random(seed)
    got: list[str] = []
    for _ in range(500):
        asked = controller.draw(rng).cell
        cell = (
            asked
            if config.uniform_share < 1
            else Cell(rng.choices(domains, weights=[0.7**i for i in range(20)])[0], asked.family, asked.band)
        )
        controller.record(Report(asked, "C>F", cell))
        got.append(cell.domain)
    return domain_diversity(got, domains).entropy_bits


def test_steering_fills_the_long_tail() -> None:
    steered, native = toy(EvolutionConfig(), 1), toy(EvolutionConfig(uniform_share=1.0), 1)

    assert native < 3.2
    assert steered > 4.2


def test_draws_are_those_of_the_seed() -> None:
    first, second = Controller(("a", "b")), Controller(("a", "b"))

    assert [first.draw(random.Random(s)) for s in range(20)] == [second.draw(random.Random(s)) for s in range(20)]


def test_it_stops_only_when_idle_and_on_target() -> None:
    controller = Controller(("a",), EvolutionConfig(objective="rarity", stop_band_tolerance=0.05))
    shares = dict(zip(BANDS, controller.config.band_shares, strict=True))

    def one_round() -> None:
        for band in BANDS:
            for _ in range(round(20 * shares[band])):
                cell = Cell("a", "C>F", band)
                controller.record(Report(cell, "C>F", cell))
        controller.end_round()

    for _ in range(3):
        one_round()
        assert not controller.is_done()
    one_round()
    assert controller.is_done()
    for _ in range(60):
        controller.record(Report(Cell("a", "C>F", "low"), "C>F", Cell("a", "C>F", "low")))
    controller.end_round()
    assert not controller.is_done(), "bands are off target"


def test_by_coverage_a_run_ends_with_its_number_alone() -> None:
    controller = Controller(("a",))
    for _ in range(10):
        controller.end_round()
    assert not controller.is_done()


def test_a_collapse_is_shouted_and_an_even_spread_is_not() -> None:
    domains = ("a", "b", "c", "d", "e")
    collapsed, even = (Controller(domains, EvolutionConfig(objective="rarity")) for _ in range(2))
    families = even.families
    for i in range(60):
        collapsed.record(Report(Cell("a", "C>F", "low"), "C>F", Cell("a", "C>F", "low")))
        cell = Cell(domains[i % 5], families[i % len(families)], "low")
        even.record(Report(cell, "x", cell))

    assert [alarm.split()[:2] for alarm in collapsed.alarms()] == [["domain", "a"], ["family", "C>F"]]
    assert even.alarms() == []
    by_coverage = Controller(domains)
    for _ in range(60):
        by_coverage.record(Report(Cell("a", "C>F", "low"), "C>F", Cell("a", "C>F", "low")))
    assert [alarm.split()[:2] for alarm in by_coverage.alarms()] == [["domain", "a"]], "families are not drawn, so none has a share"


def test_three_conversations_of_one_domain_of_many_are_chance_and_raise_no_alarm() -> None:
    few = Controller(tuple(f"domain {i:02}" for i in range(75)))
    for i in range(50):
        cell = Cell(f"domain {max(i - 2, 0):02}", few.families[i % len(few.families)], "low")
        few.record(Report(cell, "x", cell))

    assert few.alarms() == [], "3 of 50 is 6 %, more than 3 times a 75th, and no collapse"
