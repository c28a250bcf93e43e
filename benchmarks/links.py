"""The links between synthesis, funnel and training. `make bench links`.

cue_auc_min: least area under the ROC curve with which a classifier of the visible prefix tells a kind of decision from the others;
`_without_words`: the same with the users' words taken away. uncued_share: decisions that need a cue and have none (docs/definitions.md).
synthesised_share_sft1, _rl: of the items of a sample run's splits, those that are conversations of synthesis or siblings of them;
release_kinds: origins that both splits have. sft1_mixed_minus_experts: what conversations add to the seed SFT at equal tokens.
difficulty_*, unsolved_*: what the prior by other tasks says of tasks that were not probed (`links_sections/difficulty.py` lists them).
sft2_all_solved_minus_certain: what the second SFT gains from own traces of every solved task; `_lo95`: lower end of its interval.
"""

from __future__ import annotations

from benchmarks.harness import Section, run_sections
from benchmarks.links_sections import cues, difficulty, mixed, sample, second

DIFFICULTY_KEYS = (
    *("difficulty_spearman", "difficulty_spearman_lo95", "difficulty_spearman_static", "difficulty_spearman_intent"),
    *("difficulty_spearman_permuted", "difficulty_spearman_ceiling", "difficulty_spearman_calls", "difficulty_spearman_static_calls"),
    *("difficulty_prior_share", "unsolved_solved_later", "unsolved_solved_later_hopeless"),
)


def sections() -> list[Section]:
    gain, mixed_gain = "sft2_all_solved_minus_certain", "sft1_mixed_minus_experts"
    return [
        Section("cues", ("cue_auc_min", "cue_auc_min_without_words", "uncued_share"), cues.measure, minutes=4),
        Section("sample run", ("synthesised_share_sft1", "synthesised_share_rl", "release_kinds"), sample.measure, minutes=sample.MINUTES),
        Section("difficulty prior", DIFFICULTY_KEYS, difficulty.measure, minutes=difficulty.MINUTES),
        Section("mixed seed split", (mixed_gain, f"{mixed_gain}_lo95"), mixed.measure, minutes=mixed.MINUTES),
        Section("second SFT", (gain, f"{gain}_lo95"), second.measure, minutes=second.MINUTES),
    ]


if __name__ == "__main__":
    raise SystemExit(run_sections("links", sections()))
