"""Does diversity beat quantity? The whole experiment (`python -m benchmarks.experiment`, docs/experiment.md) with its defaults.

`diversity_gain`: success on held-out domains of the controller's arm less the random arm's, at equal tokens and the largest size;
`gain_over_even`: over unsteered conversations whose domains are drawn evenly; `shuffled_gain`: of the control over the base policy;
`ceiling_*`: what success tends to with ever more tokens; `power_check`, `best_arm`: what has to be reached for `experiment_power` to be 1.
`experiment_minutes` adds up over calls and kills: pieces that are done are kept beside the benchmark's own, and not done again.
"""

from __future__ import annotations

from benchmarks.harness import ROOT, Deadline, Figures, OutOfTime, Section

WORK = ROOT / ".cache" / "bench" / "synthesis" / "experiments"
WITH_INTERVAL = ("diversity_gain", "gain_over_even", "ceiling_random", "ceiling_controller", "shuffled_gain")
KEYS = (
    *(f"{name}{end}" for name in WITH_INTERVAL for end in ("", "_lo95", "_hi95")),
    *("experiment_power", "experiment_minutes", "power_check", "best_arm", "base_success", "code_pass_base"),
    *("forgetting_random", "forgetting_controller"),
)


def sections() -> list[Section]:
    return [Section("experiment", KEYS, measure, minutes=5)]


def measure(deadline: Deadline) -> Figures:
    """Raises OutOfTime where trainings are missing when the time is up; the next call makes them."""
    from benchmarks.experiment.config import DiversityExperimentConfig
    from benchmarks.experiment.diversity import run_experiment
    from benchmarks.experiment.result import figures

    def told(label: str, done: int, total: int) -> None:
        if done == total or done % 6 == 0:
            print(f"    {label}: {done} of {total}", flush=True)

    result, home = run_experiment(WORK, DiversityExperimentConfig(), minutes=deadline.minutes_left, progress=told)
    if result.missing:
        print(f"    {result.missing} trainings are missing", flush=True)
        raise OutOfTime
    print((home / "table.md").read_text(), result.says, sep="\n", flush=True)
    return figures(result)
