"""The word lists: every verb has one class."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import yaml

import synth.clusters.tool_words


def test_no_verb_has_two_classes() -> None:
    text = yaml.safe_load(Path(synth.clusters.tool_words.__file__).with_suffix(".yaml").read_text(encoding="utf-8"))

    verbs = Counter(verb for key in ("strong_verbs", "weak_verbs") for listed in text[key].values() for verb in listed.split())

    assert [verb for verb, count in verbs.items() if count > 1] == []
