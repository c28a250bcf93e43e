"""A stranger's first hour: does anything break, is every refusal short, how long until there is something of theirs. `make bench hour`.

hour_steps, hour_failed, hour_minutes, english_world_chinese_chars: `hour_sections/newcomer.py`, in a fresh clone.
templates_rendered, templates_wrong: chat templates of TRL that have tools, and those with a fault in a rendering of an export.
ungrounded_even, ungrounded_junk_share: of queries that no world reads, as `curate` keeps them: `hour_sections/ungrounded.py`.
run_wall_s, run_cpu_s, rl_above_sft_seeds: the sample run, `hour_sections/sample_run.py`.
help_cold_s, doctor_s: seconds of a fresh process. error_lines_max: lines of the longest refusal of the wrong calls.
"""

from __future__ import annotations

from benchmarks.harness import Section, run_sections
from benchmarks.hour_sections import newcomer, sample_run, start_up, templates, ungrounded, wrong_calls


def sections() -> list[Section]:
    return [
        Section("start of a process", start_up.KEYS, start_up.measure, minutes=start_up.MINUTES),
        Section("wrong calls", wrong_calls.KEYS, wrong_calls.measure, minutes=wrong_calls.MINUTES),
        Section("templates", templates.KEYS, templates.measure, minutes=templates.MINUTES),
        Section("queries without a world", ungrounded.KEYS, ungrounded.measure, minutes=ungrounded.MINUTES),
        Section("sample run", sample_run.KEYS, sample_run.measure, minutes=sample_run.MINUTES),
        Section("newcomer", newcomer.KEYS, newcomer.measure, minutes=newcomer.MINUTES),
    ]


if __name__ == "__main__":
    raise SystemExit(run_sections("hour", sections()))
