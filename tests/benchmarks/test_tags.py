"""All figures of the benchmark of tags."""

from __future__ import annotations

from collections import Counter

from benchmarks import tags


def test_every_figure_has_one_section() -> None:
    counts = Counter(key for section in tags.sections() for key in section.keys)
    assert max(counts.values()) == 1
    assert {
        "bfcl_accepted",
        "trivial_policies_passed",
        "difficulty_spearman",
        "adaptive_k_share",
        "rollouts_vs_trl",
        "veto_recall",
    } <= set(counts)
