"""The links between synthesis, funnel and training. `make bench links`.

cue_auc_min: least area under the ROC curve with which a classifier of the visible prefix tells a kind of decision from the others;
`_without_words`: the same with the users' words taken away. uncued_share: decisions that need a cue and have none (docs/definitions.md).
template_mask_errors: of 1,000 conversations in five chat templates, those whose training row, engine's context and rendering by the
model's own template differ in a token or a mask, or whose turns read back as another message.
synthesised_share_sft1, _rl: of the items of a sample run's splits, those that are conversations of synthesis or siblings of them;
release_kinds: origins that both splits have. sft1_mixed_minus_experts: what conversations add to the seed SFT at equal tokens.
sft2_all_solved_minus_certain: what the second SFT gains from own traces of every solved task; `_lo95`: lower end of its interval.
ladder_*, sft2_minus_sft1 ..: success of each stage of the default cascade with conversations, and their differences; cascade_cpu_min.
fsdp_two_process_loss_gap, lora_resume_equal: sharded against whole training, and a killed stage with LoRA against an undisturbed one.
"""

from __future__ import annotations

from benchmarks.harness import Section, run_sections
from benchmarks.links_sections import cues, ladder, large_models, mixed, sample, second, templates


def sections() -> list[Section]:
    gain, mixed_gain = "sft2_all_solved_minus_certain", "sft1_mixed_minus_experts"
    return [
        Section("cues", ("cue_auc_min", "cue_auc_min_without_words", "uncued_share"), cues.measure, minutes=4),
        Section("templates", ("template_mask_errors",), templates.measure, minutes=4),
        Section("sample run", ("synthesised_share_sft1", "synthesised_share_rl", "release_kinds"), sample.measure, minutes=sample.MINUTES),
        Section("mixed seed split", (mixed_gain, f"{mixed_gain}_lo95"), mixed.measure, minutes=mixed.MINUTES),
        Section("second SFT", (gain, f"{gain}_lo95"), second.measure, minutes=second.MINUTES),
        Section("ladder", ladder.KEYS, ladder.measure, minutes=0),
        Section("large models", ("fsdp_two_process_loss_gap", "lora_resume_equal"), large_models.measure, minutes=8),
    ]


if __name__ == "__main__":
    raise SystemExit(run_sections("links", sections()))
