"""Reasons of the funnel in words."""

from __future__ import annotations

_IN_WORDS = {
    "not_needed": "not needed: as many of its kind as are wanted were kept",
    "not_pooled": "not needed: as many of its kind as are compared were there before it",
    "not_shortlisted": "not needed: others of its kind, or of other kinds, were chosen",
    "equal_frame": "asks for the same as an earlier query, in every value",
    "unknown": "its words are known, its intent is not",
    "unparsed": "some of its words are in no place of the intent",
    "ambiguous": "it can be read in two ways",
    "missing_tool": "no world has a tool for it",
    "not_actionable": "it asks for nothing that a tool does",
    "dropped_by_hand": "a person dropped it by hand",
    "frame_dropped_by_hand": "a person dropped by hand what it asks for",
    "missing_information": "something that the intent needs is not said",
}
"""Why a query was dropped, or no task was made of it."""


def reason_in_words(reason: str) -> str:
    """A reason in words; one that is not listed, such as that of a user's own step, with blanks for its underscores."""
    return _IN_WORDS.get(reason, reason.replace("_", " "))
