"""Does diversity beat quantity? The whole experiment (`headrace experiment diversity`, docs/experiment.md) with its defaults.

`diversity_gain`: success on held-out domains of the controller's arm less the random arm's, at equal tokens and the largest size;
`ceiling_*`: what success tends to with ever more tokens; `power_check`, `best_arm`: what has to be reached for `experiment_power` to be 1.
`experiment_minutes` adds up over kills: pieces that are done are kept beside the benchmark's own, and not done again.
"""

from __future__ import annotations

from benchmarks.harness import ROOT, Deadline, Figures, Section

WORK = ROOT / ".cache" / "bench" / "synthesis" / "experiments"
WITH_INTERVAL = ("diversity_gain", "ceiling_random", "ceiling_controller")
KEYS = (
    *(f"{name}{end}" for name in WITH_INTERVAL for end in ("", "_lo95", "_hi95")),
    *("experiment_power", "experiment_minutes", "power_check", "best_arm", "code_pass_base"),
    *("forgetting_random", "forgetting_controller", "shuffled_gain"),
)


def sections() -> list[Section]:
    return [Section("experiment", KEYS, measure, minutes=75)]


def measure(_: Deadline) -> Figures:
    from train.diversity_experiment import run_experiment
    from train.experiment.config import DiversityExperimentConfig
    from train.experiment.result import figures

    def told(label: str, done: int, total: int) -> None:
        if done == total or done % 6 == 0:
            print(f"    {label}: {done} of {total}", flush=True)

    result, home = run_experiment(WORK, DiversityExperimentConfig(), progress=told)
    print((home / "table.md").read_text(), result.says, sep="\n", flush=True)
    return figures(result)
