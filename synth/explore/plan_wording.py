"""Requests for found plans, by template: what the tool does, in the words of its description, and every value with what it is called.

One idea: a value that is looked up is told by what it is looked up by: `the order of the user with email ada@x`. The words are plain and
complete, so that the request determines the plan; an engine may reword them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from storage.records import JSON
from synth.explore.value_records import words_of
from synth.worlds.live.plans import PlanCall, form_of

_ID_WORDS = {"id", "ids", "uuid", "uid", "key"}
_SENTENCE = re.compile(r"[.!?](\s|$)|\n")
_READ_VERBS = {"get", "find", "list", "read", "search", "fetch", "look", "show", "open", "describe", "retrieve", "query"}


def act_phrase(tool: str, description: str) -> str:
    """What a tool does, as an order: the first sentence of its description where that is short, else its name."""
    first = _SENTENCE.split(description.strip(), maxsplit=1)[0].strip()
    first = re.sub(r"\(.*?\)", "", first).strip().replace("{", "").replace("}", "").replace("[", "").replace("]", "")
    words = first.split()
    starts_alike = bool(words) and words_of(words[0])[:1] == words_of(tool)[:1]
    if 2 <= len(words) <= 9 and starts_alike and '"' not in first:
        return first[0].lower() + first[1:]
    return " ".join(words_of(tool))


def request_for_act(calls: Sequence[PlanCall], labels: Mapping[str, str], description: str) -> str:
    """The template of a request for the act of the last call."""
    call = calls[-1]
    parts = [phrase for name, source in call.arguments.items() for phrase in _phrases(name, source, calls, labels)]
    return f"Please {act_phrase(call.tool, description)}{': ' if parts else ''}{', '.join(parts)}."


def request_for_value(calls: Sequence[PlanCall], labels: Mapping[str, str], told_label: str, path: Sequence[Any]) -> str:
    """The template of a request for a value in the result of the last call."""
    call = calls[-1]
    parts = [phrase for name, source in call.arguments.items() for phrase in _phrases(name, source, calls, labels)]
    where = [f"where the {step['where'][0].replace('_', ' ')} is {{{step['where'][1]}}}" for step in path if isinstance(step, Mapping)]
    noun = " ".join(word for word in words_of(call.tool) if word not in _READ_VERBS)
    middle = f" for {', '.join(parts)}" if parts else ""
    return f"What is the {told_label} in the {noun or 'result'}{middle}{' ' if where else ''}{' and '.join(where)}?"


def label_of_path(path: Sequence[Any]) -> str:
    """What a value is called: the last names on the way to it."""
    names = [str(step) for step in path if isinstance(step, str) and step not in ("*", "@")]
    return " ".join(word for name in names[-2:] for word in words_of(name)) or "value"


def _phrases(name: str, source: JSON, calls: Sequence[PlanCall], labels: Mapping[str, str]) -> list[str]:
    form = form_of(source)
    if form == "said":
        return [f"{labels[source['said']]} {{{source['said']}}}"]
    if form == "found":
        return [found_phrase(name, source, calls, labels)]
    if isinstance(source, Mapping):
        return [phrase for key, inner in source.items() for phrase in _phrases(key, inner, calls, labels)]
    if isinstance(source, list):
        return [phrase for inner in source for phrase in _phrases(name, inner, calls, labels)]
    return [f"{' '.join(words_of(name))} {'yes' if source is True else 'no' if source is False else source}"]


def found_phrase(name: str, source: JSON, calls: Sequence[PlanCall], labels: Mapping[str, str]) -> str:
    """What is looked up, by what it is looked up by: `the order of the user with email {email}, where the status is {status}`."""
    at, path = source["found"]
    call = calls[at]
    noun = " ".join(word for word in words_of(name) if word not in _ID_WORDS) or "one"
    by = []
    for inner_name, inner in call.arguments.items():
        form = form_of(inner)
        if form == "said":
            by.append(f"with {labels[inner['said']]} {{{inner['said']}}}")
        elif form == "found":
            by.append(f"of {found_phrase(inner_name, inner, calls, labels)}")
    where = [f"whose {step['where'][0].replace('_', ' ')} is {{{step['where'][1]}}}" for step in path if isinstance(step, Mapping)]
    return " ".join([f"the {noun}", *([" and ".join(by)] if by else []), *where])
