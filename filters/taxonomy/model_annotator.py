"""An annotator with a language model, which reads the texts; the scripted one counts words and compares vectors.

The prompt shows the tree (every label with its description and first examples) and some texts. The model gives each text a label and a
confidence, and open words if no label fits. The answer is checked: one row for every text, and labels of the tree. The model gets the
problems back, twice at most; then the texts are asked one by one. A text that still has no label is `other` with confidence 0, and its
reason is counted (`no_leaf`: a label that is not in the tree; `malformed`: not the requested JSON; `overflow`: no room in the engine's
window). An engine that does not answer raises an error.

A label depends on the tree as the prompt shows it. Further examples of a leaf change no prompt, so an unchanged tree costs nothing.

Texts get one leaf only, and no constraints.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from filters.llm_calls import ask_each, is_overflow, name_of
from filters.taxonomy.annotate import Annotation, Proposal, is_other
from filters.taxonomy.tree import OTHER, Node, Tree, other_of
from storage.execution import Progress
from storage.records import JSON
from synth.engines.base import ChatRequest, Engine, EngineFailure
from synth.engines.encoder import Vectors
from synth.engines.structured import Structured, ask, parse_and_check
from synth.prompts import prompt, versions

LABEL, NAME = "label", "name_class"
_TEXTS_ASKED = 20
"""Texts of one request."""
_SHOWN, _NAMED_BY, _CUES = 2, 40, 5
"""Examples shown of each leaf; texts shown of a group that is named; cues taken of it."""
_LENGTH, _NAME_LENGTH = 400, 60
"""Characters of a text or description that are shown or taken; of a name or cue."""
_TOKENS_A_TEXT, _TOKENS = 60, 300


@dataclass(frozen=True, slots=True)
class _TextLabel:
    label: str
    sure: float
    about: str | None


class ModelAnnotator:
    """Asks an engine. reasons: number of texts and groups without a usable answer, by problem."""

    def __init__(self, engine: Engine, *, progress: Progress | None = None) -> None:
        self.reasons: Counter[str] = Counter()
        self._engine, self._progress = engine, progress
        self._name = name_of(engine)
        self._known: dict[tuple[str, str], _TextLabel] = {}

    @property
    def made_by(self) -> dict[str, JSON]:
        """For provenance: the engine and which weights, the prompts' versions, and `reasons`."""
        return {"engine": self._name, "prompts": dict(versions(LABEL, NAME)), "reasons": dict(sorted(self.reasons.items()))}

    def annotate(self, texts: Sequence[str], vectors: Vectors, tree: Tree) -> Annotation:
        """See `Annotator`; vectors are not used. Without leaves all rows are `other`, and the model is not asked.

        Raises:
            EngineFailure: the engine did not answer. BudgetSpent: nothing more may be asked.
        """
        if not tree.leaves:
            return Annotation([OTHER] * len(texts), np.ones(len(texts)), [None] * len(texts))
        shown = _label_list(tree)
        key = json.dumps(shown)
        missing = [text for text in dict.fromkeys(texts) if (key, text) not in self._known]
        self._known |= {(key, text): label for text, label in zip(missing, self._label(missing, shown), strict=True)}
        labels = [self._known[key, text] for text in texts]
        return Annotation([one.label for one in labels], np.array([one.sure for one in labels]), [one.about for one in labels])

    def propose(self, texts: Sequence[str]) -> Proposal:
        """See `Annotator`. Where the model gives nothing usable: `unnamed`, which is counted.

        Raises:
            EngineFailure: the engine did not answer. BudgetSpent: nothing more may be asked.
        """
        places = np.unique(np.linspace(0, len(texts) - 1, min(len(texts), _NAMED_BY)).round().astype(np.int64)).tolist()
        shown = [_short(texts[place]) for place in places]
        request = ChatRequest(prompt(NAME).messages(texts=[_quote(text) for text in shown]), max_tokens=_TOKENS, schema=_NAME_SCHEMA)
        (answer,) = ask(self._engine, [request], check=lambda _, value: _naming_problems(value, texts))
        if answer.problems:
            self.reasons["unnamed"] += 1
            return Proposal("unnamed", f"Texts such as: {shown[0]}", ())
        value: Any = answer.value
        cues = dict.fromkeys(cue.strip().lower() for cue in value["cues"])
        return Proposal(value["name"].strip(), _short(value["description"].strip()), tuple(cues)[:_CUES])

    def _label(self, texts: Sequence[str], shown: list[dict[str, str]]) -> list[_TextLabel]:
        batches = [list(texts[start : start + _TEXTS_ASKED]) for start in range(0, len(texts), _TEXTS_ASKED)]
        answers = [_parse_answer(one) for one in self._ask(batches, shown)]
        wrong = [place for place, labels in enumerate(answers) if labels is None]
        singles = self._ask([[text] for place in wrong for text in batches[place]], shown)
        alone = iter([labels[0] if (labels := _parse_answer(one)) is not None else self._other(one, shown) for one in singles])
        rows = ([next(alone) for _ in batch] if labels is None else labels for batch, labels in zip(batches, answers, strict=True))
        return [row for labels in rows for row in labels]

    def _ask(self, batches: Sequence[list[str]], shown: list[dict[str, str]]) -> list[Structured]:
        schema = _label_schema([one["id"] for one in shown])
        requests = [
            ChatRequest(
                prompt(LABEL).messages(labels=shown, texts=[_quote(text) for text in batch]),
                max_tokens=_TOKENS + _TOKENS_A_TEXT * len(batch),
                schema=schema,
            )
            for batch in batches
        ]
        answers: list[Structured] = []
        for batch_answer in ask_each(
            self._engine,
            requests,
            check=lambda place, value: _row_problems(value, len(batches[place])),
            label="annotate",
            progress=self._progress,
        ):
            if isinstance(batch_answer, EngineFailure):
                raise batch_answer
            answers.append(batch_answer)
        return answers

    def _other(self, answer: Structured, shown: list[dict[str, str]]) -> _TextLabel:
        """The label of a text without a usable answer: `other`, with confidence 0; counts the reason."""
        value: Any = parse_and_check(answer.answers[-1].message.content or "", _label_schema(None))[0] or {"rows": []}
        labels = {one["id"] for one in shown}
        is_strange = any(row["label"] not in labels for row in value["rows"])
        self.reasons["overflow" if is_overflow(answer) else "no_leaf" if is_strange else "malformed"] += 1
        return _TextLabel(OTHER, 0.0, None)


# ---- prompts, schemas and checks ------------------------------------------------------------------------------------------------


def _label_list(tree: Tree) -> list[dict[str, str]]:
    """Every label with what belongs to it."""
    leaves = {leaf.id for leaf in tree.leaves}
    labels = [
        {"id": node.id, "text": _describe(node)} if node.id in leaves else {"id": other_of(node.id), "text": f"other: {_describe(node)}"}
        for node in tree.nodes
    ]
    return [*labels, {"id": OTHER, "text": "none of these classes"}]


def _describe(node: Node) -> str:
    examples = "; ".join(_quote(_short(text)) for text in node.examples[:_SHOWN])
    return ". ".join(part for part in (node.name, _short(node.description), f"e.g. {examples}" if examples else "") if part)


def _label_schema(labels: Sequence[str] | None) -> dict[str, JSON]:
    """labels: None for any."""
    label: dict[str, JSON] = {"type": "string"} if labels is None else {"type": "string", "enum": list(labels)}
    row = _object({"n": {"type": "integer"}, "label": label, "sure": {"type": "number"}, "about": {"type": ["string", "null"]}})
    return _object({"rows": {"type": "array", "items": row}})


def _object(properties: dict[str, JSON]) -> dict[str, JSON]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_NAME_SCHEMA = _object(
    {"name": {"type": "string"}, "description": {"type": "string"}, "cues": {"type": "array", "items": {"type": "string"}}}
)


def _row_problems(value: Any, count: int) -> list[str]:
    problems = [f"row {row['n']}: sure is {row['sure']}, not from 0 to 1" for row in value["rows"] if not 0 <= row["sure"] <= 1]
    numbers = [row["n"] for row in value["rows"]]
    if numbers != list(range(1, count + 1)):
        problems.append(f"the rows are numbered {numbers}; give one row for each request, 1 to {count}, in their order")
    return problems


def _naming_problems(value: Any, texts: Iterable[str]) -> list[str]:
    lowered = [text.lower() for text in texts]
    problems = [f"name: give one to three words, {value['name']!r} is not"] if not _is_name(value["name"]) else []
    problems += ["description: say which requests belong to the class"] if not value["description"].strip() else []
    strange = [cue for cue in value["cues"] if not _is_name(cue) or not any(cue.strip().lower() in text for text in lowered)]
    return problems + [f"cues: {cue!r} stands in none of the requests; leave it out" for cue in strange]


def _is_name(text: str) -> bool:
    return any(map(str.isalnum, text)) and len(text) <= _NAME_LENGTH


def _parse_answer(answer: Structured) -> list[_TextLabel] | None:
    """The rows of an answer; None where it is not right."""
    if answer.problems:
        return None
    value: Any = answer.value
    return [
        _TextLabel(
            row["label"], float(row["sure"]), ((row["about"] or "").strip()[:_NAME_LENGTH] or None) if is_other(row["label"]) else None
        )
        for row in value["rows"]
    ]


def _quote(text: str) -> str:
    return json.dumps(_short(text), ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…"
