"""Which tokens of a rollout the policy has sampled, found in the tokens alone, to count what a trainer's mask has wrong.

One idea: an answer stands between the generation prompt and the token that ends a turn, that token included. Nothing else is the policy's:
no tool result, no user, no newline between turns, no padding. What a rollout was told to say is known too, so an answer that is missing, or
was tokenised anew, counts by its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Marks:
    """prompt: tokens of the generation prompt. end: the token that ends a turn."""

    prompt: Sequence[int]
    end: int


def spans(ids: Sequence[int], marks: Marks) -> Iterator[range]:
    """The answers' places."""
    prompt, place = list(marks.prompt), 0
    while place <= len(ids) - len(prompt):
        if list(ids[place : place + len(prompt)]) != prompt:
            place += 1
            continue
        begin = place + len(prompt)
        end = next((index for index in range(begin, len(ids)) if ids[index] == marks.end), len(ids) - 1)
        yield range(begin, end + 1)
        place = end + 1


def mask_errors(ids: Sequence[int], mask: Sequence[int], answers: Sequence[Sequence[int]], marks: Marks) -> int:
    """Tokens whose mask is wrong, and tokens of answers that are not there as they were sampled.

    ids, mask: of one row, padding included. answers: tokens of each answer in turn.
    """
    sampled, found = [0] * len(ids), list(spans(ids, marks))
    for span in found:
        sampled[span.start : span.stop] = [1] * len(span)
    wrong = sum(bool(one) != bool(other) for one, other in zip(mask, sampled, strict=True))
    said = [list(ids[span.start : span.stop]) for span in found]
    missing = [len(answer) for number, answer in enumerate(answers) if number >= len(said) or said[number] != list(answer)]
    return wrong + sum(missing) + sum(len(extra) for extra in said[len(answers) :])
