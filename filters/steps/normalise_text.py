"""The step that writes the normalised text of a row, its language and its key (`filters/normalised_text.py`)."""

from __future__ import annotations

from filters import normalised_text
from filters.step import BatchStep

STEP = BatchStep(
    name="normalise",
    needs=("text",),
    adds=("text", "norm", "language", "key_high", "key_low"),
    reasons=("undecodable",),
    function=normalised_text.step,
)
