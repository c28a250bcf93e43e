"""The closed loop: a focus turns the choice to what failed, no conversation is taken twice, and a known difference is found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiment import closed_loop
from benchmarks.experiment.cells import Cells, pack
from benchmarks.experiment.closed_loop import RIVALS, SEEDS, WEIGHTS, SharedCell, chosen_by, figures, finals, first, second
from benchmarks.experiment.conversations import make_pool
from benchmarks.experiment.domains import SETTING_THEMES, DomainsConfig, choose_domains, domains_of
from benchmarks.experiment.held_out import EACH, STRATA


def test_a_focus_takes_more_of_what_failed_and_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_loop, "ROUND_SIZE", 5)
    worlds = domains_of(choose_domains(DomainsConfig(themes=SETTING_THEMES[:2], training=2, held_out=0))).training
    pool = make_pool("evolved", worlds, 60, 0, tmp_path)
    tokens = [200] * len(pool)
    domain = Counter(one.blueprint.domain for one in pool).most_common()[-1][0]

    focuses = (((f"domain {domain}", 3.0),),) * 2
    plain, focused, unfocused = (
        chosen_by(pool, tokens, ((), ()), 1),
        chosen_by(pool, tokens, focuses, 1),
        chosen_by(pool, tokens, focuses, 0),
    )

    assert unfocused == plain
    assert len(set(focused)) == len(focused) == len(plain)
    assert focused[:5] == plain[:5] != [], "the first round is the same"
    of_domain = [sum(pool[at].blueprint.domain == domain for at in chosen) for chosen in (focused, plain)]
    assert of_domain[0] > of_domain[1]


def test_every_key_is_measured_and_a_known_difference_is_found(tmp_path: Path) -> None:
    cells, rng = Cells(tmp_path / "cells.jsonl"), np.random.default_rng(0)
    for seed in SEEDS:
        cells.add(first(seed), {"focus": [[f"stratum {seed}", 0.5]], "rollouts": 100})
    for weight in WEIGHTS:
        for seed in SEEDS:
            cells.add(second(cells, seed, weight), {"focus": [[f"stratum {seed}", 0.4]], "rollouts": 100})
        for seed in SEEDS:
            compared = finals(cells, seed, weight)
            assert compared["other"].focuses == finals(cells, SEEDS[(seed + 1) % len(SEEDS)], weight)["closed"].focuses
            for name, cell in compared.items():
                cells.add(cell, {"greedy": pack((rng.random(EACH * len(STRATA)) < {"closed": 0.4}.get(name, 0.3)).tolist())})
            for rival in RIVALS:
                cells.add(SharedCell(compared["closed"], compared[rival]), {"share": 0.9})

    found = figures(cells)

    assert found["closed_shared_with_open"] == pytest.approx(0.9)
    assert set(found) == set(closed_loop.KEYS)
    assert found["closed_minus_open"] == pytest.approx(0.1, abs=0.02)
    assert found["closed_minus_other_lo95"] > 0
    assert found["closed_rollouts"] == 200
