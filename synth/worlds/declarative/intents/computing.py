"""Computing over what was shown: the average fee of my loans, the share of them above a bound, what it all comes to.

One idea: the answer is a number that no tool shows, so a program is needed. The expert reads rows (`row_lists.py`), writes their values
into a short program and answers with what it prints. A draw is refused if its result is shown already, exactly or nearly (`is_near`).
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any

from storage.records import CODE_TOOL, JSON, Call, Fact, Language
from synth.text.claims import is_near, normalise, numbers_in
from synth.text.number_words import words_to_digits
from synth.text.slot_kinds import SlotKind
from synth.worlds.base import Shape, Slot, Solution
from synth.worlds.declarative.domain import Domain, Entity, Field, system_prompt
from synth.worlds.declarative.intents.base import Slots, SpecIntent, Work, grid, misfit, row_fact, say, value_kind, words_kind
from synth.worlds.declarative.intents.row_lists import Listed, Rows, Shown, first_of
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.values import Words
from synth.worlds.declarative.request_templates import join_lead, questions
from synth.worlds.declarative.state import State

_NUMBERS = (schema.IntegerField, schema.NumberField, schema.MoneyField)
_WIDE = 40
"""Values that lie less far apart have sums and means too near to themselves."""
_SUMMED = ("count", "nights", "days", "weeks", "months", "hours", "minutes", "people", "items", "pages", "points", "kg", "m", "km", "gb")
_PRICED = ("price", "fee", "cost", "fare", "rent", "rate", "charge", "premium")
_TIMES = ("count", "nights", "days", "weeks", "months", "hours", "people", "items")
_CURRENCIES: Mapping[str, str] = {"dollars": "美元", "yuan": "元", "euros": "欧元", "pounds": "英镑"}
_ORDERS: Mapping[Language, tuple[str, ...]] = {
    "en": ("calculate {}", "please work out {}", "can you compute {} for me"),
    "zh": ("算一下{}", "帮我计算{}", "请算出{}"),
}


@dataclass(frozen=True, slots=True)
class Measure:
    """What is computed of the values. words: as in "the ... of my loans". code: the program, `{}` where the line is that gives `values`.
    run: what it prints. rivals: wrong answers to the same question."""

    words: Words
    fields: tuple[Field, ...]
    code: str
    run: Callable[[Sequence[Any]], float]
    rivals: Callable[[Sequence[Any]], tuple[float, ...]] = lambda values: ()


def _days(values: Sequence[str]) -> int:
    days = [date.fromisoformat(day) for day in values]
    return (max(days) - min(days)).days


def _printing(value: str, of: Field) -> str:
    """A program that prints this, without the dust of decimals."""
    return f"{{}}\nprint({value})" if of.type.kind == "whole" else f"{{}}\nprint(round({value}, 1))"


def _sum_measures(of: Field) -> dict[str, Measure]:
    """What needs no rounding."""
    if of.type.kind == "date":
        words = Words(en=f"number of days between the earliest and the latest {of.label.en}", zh=f"最早与最晚{of.label.zh}相隔的天数")
        code = "from datetime import date\n{}\ndays = [date.fromisoformat(day) for day in values]\nprint((max(days) - min(days)).days)"
        return {f"{of.name}_days": Measure(words, (of,), code, _days)}
    sums = {}
    if isinstance(of.spec, schema.MoneyField) or getattr(of.spec, "unit", "") in _SUMMED:
        words = Words(en=f"total {of.label.en}", zh=f"{of.label.zh}总和")
        sums[f"{of.name}_total"] = Measure(words, (of,), _printing("sum(values)", of), lambda values: round(sum(values), 1))
    words = Words(en=f"difference between the highest and the lowest {of.label.en}", zh=f"{of.label.zh}最高与最低之差")
    code = _printing("max(values) - min(values)", of)
    sums[f"{of.name}_range"] = Measure(words, (of,), code, lambda values: round(max(values) - min(values), 1))
    return sums


def _averages(of: Field) -> dict[str, Measure]:
    """What is rounded to two decimals."""
    if of.type.kind == "date":
        return {}
    head = "import statistics\n{}\nprint(round(statistics."
    return {
        f"{of.name}_mean": Measure(
            Words(en=f"average {of.label.en}", zh=f"平均{of.label.zh}"),
            (of,),
            f"{head}mean(values), 2))",
            lambda values: round(statistics.mean(values), 2),
            lambda values: (round(statistics.median(values), 2),),
        ),
        f"{of.name}_median": Measure(
            Words(en=f"median {of.label.en}", zh=f"{of.label.zh}的中位数"),
            (of,),
            f"{head}median(values), 2))",
            lambda values: round(statistics.median(values), 2),
            lambda values: (round(statistics.mean(values), 2),),
        ),
        f"{of.name}_deviation": Measure(
            Words(en=f"population standard deviation of the {of.label.en}", zh=f"{of.label.zh}的总体标准差"),
            (of,),
            f"{head}pstdev(values), 2))",
            lambda values: round(statistics.pstdev(values), 2),
            lambda values: (round(statistics.stdev(values), 2),),
        ),
    }


def _product(price: Field, count: Field) -> Measure:
    words = Words(en=f"sum of {price.label.en} times {count.label.en}", zh=f"{price.label.zh}乘以{count.label.zh}的总和")

    def run(values: Sequence[Any]) -> float:
        return float(sum(one * many for one, many in values))

    return Measure(words, (price, count), _printing("sum(price * count for price, count in values)", price), run)


def _share(bound: float) -> tuple[str, Callable[[Sequence[Any]], float]]:
    """Percent of the values above a bound, with one decimal: code and function."""
    code = f"{{}}\nprint(round(100 * sum(value > {bound} for value in values) / len(values), 1))"
    return code, lambda values: round(100 * sum(value > bound for value in values) / len(values), 1)


class Computing(SpecIntent):
    """A measure over rows. measures: by name; a slot says which, where there are several. ending: how the request asks for rounding."""

    def __init__(self, domain: Domain, name: str, rows: Rows, measures: Mapping[str, Measure], ending: Words | None = None) -> None:
        self.rows, self.measures, self.ending = rows, measures, ending
        slots: list[tuple[Slot, SlotKind]] = [*rows.slots]
        if len(measures) > 1:
            kind, of = words_kind(f"{name}.aspect", {key: each.words for key, each in measures.items()})
            slots.append((Slot("aspect", kind), of))
        super().__init__(domain, name, "compute", slots)

    def shape(self, slot_names: frozenset[str]) -> Shape:
        reads = self.shape_of((step.tool, step.parents) for step in self.rows.steps).calls
        return Shape((*reads, (CODE_TOOL, (len(reads) - 1,))))

    def has_conflict(self, slot_names: frozenset[str]) -> bool:
        return False

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        work = Work(self.of, state)
        shown = self.rows.show(work, slots)
        measure, (code, result, wrong) = self._measure(slots), self._compute(shown, slots)
        if self._stands_there(shown, slots, code, result):
            raise misfit("the number stands there already")
        work.calls.append(Call(tool=CODE_TOOL, arguments={"code": code}))
        work.evidence += [row_fact(str(row["id"])) for row in shown.rows]
        return work.solution(self._answer(measure, slots, result, language), facts=(_fact(result, wrong),))

    def _measure(self, slots: Slots) -> Measure:
        return self.measures[slots["aspect"]] if "aspect" in slots else next(iter(self.measures.values()))

    def _compute(self, shown: Shown, slots: Slots) -> tuple[str, float, tuple[float, ...]]:
        """The program, what it prints, and wrong answers."""
        measure = self._measure(slots)
        values = _values(shown, measure.fields)
        return measure.code.format(f"values = {values!r}"), measure.run(values), measure.rivals(values)

    def _answer(self, measure: Measure, slots: Slots, result: float, language: Language) -> str:
        number = f"{result:.15g}"
        if isinstance(measure.fields[0].spec, schema.MoneyField):
            number = say(language, f"{number} {self.of.spec.head.currency}", f"{number}{_CURRENCIES[self.of.spec.head.currency]}")
        return say(language, f"The {measure.words.en} is {number}.", f"{measure.words.zh}是{number}。")

    def _stands_there(self, shown: Shown, slots: Slots, code: str, result: float) -> bool:
        """Whether the prompt, the request, an observation or the code already shows the result, exactly or nearly."""
        texts = [*shown.texts, *(str(value) for value in slots.values()), code]
        numbers = [*_numbers_told(self.of), *(number for text in texts for number in _numbers_in(text))]
        return abs(result) < 1 or any(is_near(result, reading) or is_near(reading, result) for reading in numbers)

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        for rows in self.rows.propose(state, slot_names, given, rng):
            shown = self.rows.show(Work(self.of, state), rows)
            for more in self._draw_question(shown, given, rng):
                slots = {**rows, **more}
                code, result, _ = self._compute(shown, slots)
                if not self._stands_there(shown, slots, code, result):
                    return slots
        return None

    def _draw_question(self, shown: Shown, given: Slots, rng: random.Random) -> Iterator[dict[str, JSON]]:
        """The other slots, in random order."""
        names = [given["aspect"]] if "aspect" in given else rng.sample(list(self.measures), len(self.measures))
        for name in names:
            yield {"aspect": name} if len(self.measures) > 1 else {}

    def wordings(self) -> Mapping[Language, Sequence[str]]:
        out: dict[Language, Sequence[str]] = {}
        languages: tuple[Language, ...] = ("en", "zh")
        for language in languages:
            words = "{aspect}" if len(self.measures) > 1 else next(iter(self.measures.values())).words[language]
            ways = [(lead, f"the {words} of {rows}" if language == "en" else f"{rows}的{words}") for lead, rows in self.rows.ways(language)]
            ending = self.ending[language] if self.ending is not None else ""
            requests = [join_lead(lead, form.replace("{}", text) + ending, language) for form in _ORDERS[language] for lead, text in ways]
            out[language] = [*questions(ways, language, ending), *requests]
        return out


class Sharing(Computing):
    """What percentage of the rows lies above a bound?"""

    def __init__(self, domain: Domain, name: str, rows: Rows, of: Field) -> None:
        words = Words(en=f"percentage with {of.label.en} above the bound", zh=f"{of.label.zh}超过界限的百分比")
        super().__init__(domain, name, rows, {"share": Measure(words, (of,), "", lambda values: 0.0)}, _ONE_DECIMAL)
        self.field = of
        kind, bounds = value_kind(domain, rows.entity.name, of)
        self.slots, self.kinds = (*self.slots, Slot("bound", kind)), {**self.kinds, kind: bounds}

    def _compute(self, shown: Shown, slots: Slots) -> tuple[str, float, tuple[float, ...]]:
        code, run = _share(slots["bound"])
        values = _values(shown, (self.field,))
        result = run(values)
        return code.format(f"values = {values!r}"), result, (round(100 - result, 1),)

    def _answer(self, measure: Measure, slots: Slots, result: float, language: Language) -> str:
        return say(language, f"It is {result:.15g} percent.", f"占百分之{result:.15g}。")

    def _draw_question(self, shown: Shown, given: Slots, rng: random.Random) -> Iterator[dict[str, JSON]]:
        values = _values(shown, (self.field,))
        bounds = [given["bound"]] if "bound" in given else [bound for bound in grid(self.field.spec) if min(values) < bound < max(values)]
        for bound in rng.sample(bounds, len(bounds)):
            yield {"bound": bound}

    def wordings(self) -> Mapping[Language, Sequence[str]]:
        label, out = self.field.label, dict[Language, Sequence[str]]()
        out["en"] = [
            join_lead(lead, form.format(rows=rows, label=label.en), "en")
            for form in (
                "what percentage of {rows} has a {label} above {{bound}}, to one decimal",
                "please work out what percentage of {rows} has a {label} of more than {{bound}}, to one decimal",
                "can you calculate which share of {rows} has a {label} above {{bound}}, in percent with one decimal",
                "I would like to know what percentage of {rows} is above {{bound}} in {label}, to one decimal",
            )
            for lead, rows in self.rows.ways("en")
        ]
        out["zh"] = [
            join_lead(lead, form.format(rows=rows, label=label.zh), "zh")
            for form in (
                "{rows}里{label}超过{{bound}}的占百分之多少，保留一位小数",
                "算一下{rows}中{label}高于{{bound}}的百分比，保留一位小数",
                "请问{label}超过{{bound}}的占{rows}的百分之几，保留一位小数",
                "帮我计算{rows}当中{label}大于{{bound}}的比例，用百分数，保留一位小数",
            )
            for lead, rows in self.rows.ways("zh")
        ]
        return out


_ONE_DECIMAL = Words(en=", to one decimal", zh="，保留一位小数")
_TWO_DECIMALS = Words(en=", rounded to two decimals", zh="，保留两位小数")


@lru_cache(maxsize=1024)
def _numbers_in(text: str) -> tuple[float, ...]:
    """Everything that could be read as a number, in figures or in words."""
    plain = normalise(text)
    numbers = (*numbers_in(plain, also_parts=True), *numbers_in(words_to_digits(plain)))
    return tuple({reading for number in numbers for reading in number.readings})


@lru_cache(maxsize=256)
def _numbers_told(domain: Domain) -> tuple[float, ...]:
    """Numbers of the system prompt."""
    return _numbers_in(system_prompt(domain))


def _values(shown: Shown, fields: Sequence[Field]) -> list[Any]:
    """The values that the rows show: of one field, or tuples of several."""
    if len(fields) == 1:
        return [row[fields[0].name] for row in shown.rows]
    return [tuple(row[each.name] for each in fields) for row in shown.rows]


def _fact(result: float, wrong: Sequence[float]) -> Fact:
    return Fact(kind="exact", value=f"{result:.15g}", rivals=tuple(f"{value:.15g}" for value in wrong if value != result))


# ---- which there are --------------------------------------------------------------------------------------------------------------


def computing(domain: Domain, name_field: Callable[[Entity], Field | None]) -> Iterator[SpecIntent]:
    """All jobs of computing that a domain could have. named: the proper name by which an entity is searched."""
    for entity in domain.by_number:
        wide = [each for each in entity.fields.values() if _is_wide(each)]
        if not wide:
            continue
        owner = next((each for each in entity.owners() if each.place >= 0), None)
        if owner is not None and entity.spec.rows >= 2 * domain.entities[owner.type.entity].spec.rows:
            mine = Listed(domain, entity, owner, None)
            yield from _sums_and_averages(domain, f"{entity.name}_of_{owner.name}", mine, wide)
            yield from _special(domain, f"{entity.name}_of_{owner.name}", mine, wide)
            name = name_field(domain.entities[owner.type.entity])
            averages = _all(_averages, wide)
            if name is not None and averages:
                theirs = Listed(domain, entity, owner, name)
                yield Computing(domain, f"average_{entity.name}_of_named_{owner.name}", theirs, averages, _TWO_DECIMALS)
        few = first_of(domain, entity)
        if few is not None:
            yield from _sums_and_averages(domain, f"first_{entity.name}", few, wide)


def _sums_and_averages(domain: Domain, name: str, rows: Rows, wide: Sequence[Field]) -> Iterator[SpecIntent]:
    sums, averages = _all(_sum_measures, wide), _all(_averages, wide)
    if sums:
        yield Computing(domain, f"total_{name}", rows, sums)
    if averages:
        yield Computing(domain, f"average_{name}", rows, averages, _TWO_DECIMALS)


def _special(domain: Domain, name: str, rows: Rows, wide: Sequence[Field]) -> Iterator[SpecIntent]:
    numbers = [each for each in wide if each.type.is_number]
    if numbers:
        yield Sharing(domain, f"share_{name}", rows, numbers[0])
    prices = [each for each in numbers if isinstance(each.spec, schema.MoneyField) and each.name.endswith(_PRICED)]
    counts = [each for each in rows.entity.fields.values() if _is_counted(each)]
    if prices and counts:
        yield Computing(domain, f"worth_{name}", rows, {"worth": _product(prices[0], counts[0])})


def _all(measures: Callable[[Field], dict[str, Measure]], fields: Sequence[Field]) -> dict[str, Measure]:
    return {name: measure for each in fields for name, measure in measures(each).items()}


def _is_wide(of: Field) -> bool:
    """Whether a field is shown in lists, and its values lie so far apart that what is computed of them is another number."""
    spec = of.spec
    if spec.detail:
        return False
    if isinstance(spec, schema.DateField):
        return bool(spec.last - spec.first >= _WIDE)
    return isinstance(spec, _NUMBERS) and bool(spec.max - spec.min >= _WIDE)


def _is_counted(of: Field) -> bool:
    return not of.spec.detail and isinstance(of.spec, schema.IntegerField) and of.spec.unit in _TIMES
