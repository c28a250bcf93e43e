"""A round that is read back counts as it counted when it was made."""

import numpy as np

from storage.record_rows import tasks_frame
from synth.blueprints.blueprint import Bands
from synth.blueprints.cell import Cell
from synth.clusters.business_clusters import cluster_tools
from synth.roles.simulate import simulated_frame
from synth.run.proposals import Job, blueprint_rows, propose, report
from synth.run.run_state import RunState
from synth.tasks.split import DivisionConfig
from synth.worlds import WORLDS

BANDS = Bands(9.0, 16.0)


def test_rows_of_a_round_add_what_the_round_added() -> None:
    clusters = tuple(cluster_tools(WORLDS["retail"].tools))
    cells = [Cell("retail", family, band) for family in ("C>F", "P>R", "N") for band in ("low", "mid", "high")]
    made = propose([Job(f"job {n}", clusters[:3], cell, 9, BANDS, 0.3, DivisionConfig()) for n, cell in enumerate(cells)])
    assert {one.accepted for one in made} == {True, False}
    done = [(one.blueprint, one.simulated, one.task) for one in made if one.blueprint is not None and one.simulated is not None]

    now, later = RunState(), RunState()
    now.add(made)
    reports = later.add_stored(
        blueprints=blueprint_rows(0, made),
        trajectories=simulated_frame(done, BANDS),
        tasks=tasks_frame([task for one in made for task in one.tasks]),
    )

    assert reports == [report(one, BANDS) for one in made]
    assert np.array_equal(now.all_vectors(), later.all_vectors())
    now.vectors = later.vectors = []
    assert now == later
    assert (now.proposals, sum(now.cluster_use.values())) == (9, 9)
