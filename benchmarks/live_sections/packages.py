"""Packages for five ecosystems, checked by each one's own tool: the expert must score 1 and an idle policy 0, for every task.

`packages_ok` is the number of formats, of five, in which that holds for all of at least 50 tasks of two worlds. Each ecosystem is in an
environment of its own (`make packages`). Figures of a format are printed; a format that fails prints why.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.harness import ROOT, Deadline
from storage.errors import HeadraceError
from synth.packages.checks.check_package import CHECKS, check_package
from synth.packages.forms.forms_by_name import FORMS
from synth.packages.task_sources import of_worlds
from synth.packages.write_package import write_package

WORLDS, PER_WORLD = ("retail", "banking"), 25
AT_LEAST = 50
MINUTES = {"verifiers": 16.0, "harbor": 10.0, "nemo-gym": 6.0, "openenv": 4.0, "inspect": 4.0}
"""How long a format takes at most, on two cores."""


def packages(deadline: Deadline) -> Mapping[str, float]:
    """Returns `packages_ok`. Raises OutOfTime before a format for which too little time is left."""
    ok = 0
    for name, form in FORMS.items():
        deadline.allows(MINUTES[name])
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "bench_tasks"
            contents = of_worlds(WORLDS, PER_WORLD + 2, folder.name)
            write_package(contents, form, folder)
            try:
                report = check_package(folder, Path(scratch) / "logs", programs=ROOT / f".venv-package-{name}" / "bin")
            except HeadraceError as error:
                print(f"    {name}: {error}", flush=True)
                continue
        count = len(report.package.task_ids)
        expert, idle = sum(report.expert.values()), sum(report.idle.values())
        print(f"    {name} ({CHECKS[name].tool}): {count} tasks, expert {expert:g}, idle {idle:g}, {report.seconds:.0f} s", flush=True)
        ok += not report.wrong and count >= AT_LEAST
    return {"packages_ok": float(ok)}
