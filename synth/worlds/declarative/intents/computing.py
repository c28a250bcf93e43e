"""Intents whose answer is computed from shown rows: the average fee of my loans, the share of them above a bound, a total.

One idea: no tool shows the answer, so a program is needed. The expert reads rows (`row_lists.py`), writes their values into a short program
and answers with its output. A draw is rejected if its result is already in a text, exactly or nearly (`is_near`).
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
from synth.worlds.base import Shape, Solution, misfit
from synth.worlds.declarative.domain import PRICE_WORDS, Domain, Field, system_prompt
from synth.worlds.declarative.intents.base import (
    KindedSlot,
    PlanDraft,
    Slots,
    SpecIntent,
    make_slot,
    row_fact,
    text_in,
    usual_values,
    value_kind,
    words_kind,
)
from synth.worlds.declarative.intents.request_templates import join_lead, questions
from synth.worlds.declarative.intents.row_lists import OwnedRows, RowList, ShownRows, first_rows
from synth.worlds.declarative.intents.row_references import searched_name
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.values import CURRENCIES_ZH, Words
from synth.worlds.declarative.rows.state import State

_NUMBERS = (schema.IntegerField, schema.NumberField, schema.MoneyField)
_MIN_RANGE = 40
"""Smallest range of a field's values: with a smaller one, totals and means are too near the values themselves."""
_SUMMED = ("count", "nights", "days", "weeks", "months", "hours", "minutes", "people", "items", "pages", "points", "kg", "m", "km", "gb")
"""Units of the numbers that have a total."""
_COUNTED = ("count", "nights", "days", "weeks", "months", "hours", "people", "items")
"""Units of the numbers by which prices are multiplied."""
_ORDERS: Mapping[Language, tuple[str, ...]] = {
    "en": ("calculate {}", "please work out {}", "can you compute {} for me"),
    "zh": ("算一下{}", "帮我计算{}", "请算出{}"),
}
_SHARE_FORMS: Mapping[Language, tuple[str, ...]] = {
    "en": (
        "what percentage of {rows} has a {label} above {{bound}}, to one decimal",
        "please work out what percentage of {rows} has a {label} of more than {{bound}}, to one decimal",
        "can you calculate which share of {rows} has a {label} above {{bound}}, in percent with one decimal",
        "I would like to know what percentage of {rows} is above {{bound}} in {label}, to one decimal",
    ),
    "zh": (
        "{rows}里{label}超过{{bound}}的占百分之多少，保留一位小数",
        "算一下{rows}中{label}高于{{bound}}的百分比，保留一位小数",
        "请问{label}超过{{bound}}的占{rows}的百分之几，保留一位小数",
        "帮我计算{rows}当中{label}大于{{bound}}的比例，用百分数，保留一位小数",
    ),
}
_ONE_DECIMAL = Words(en=", to one decimal", zh="，保留一位小数")
_TWO_DECIMALS = Words(en=", rounded to two decimals", zh="，保留两位小数")


# ---- measures -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measure:
    """A quantity that is computed of values.

    words: its name, as in "the ... of my loans".
    fields: the values: of one field, or a tuple of several fields per row.
    code: the program; `{}` is the place of the line that defines `values`.
    run: computes the program's output.
    rivals: computes wrong answers to the same question.
    """

    words: Words
    fields: tuple[Field, ...]
    code: str
    run: Callable[[Sequence[Any]], float]
    rivals: Callable[[Sequence[Any]], tuple[float, ...]] = lambda values: ()


def _days(values: Sequence[str]) -> int:
    days = [date.fromisoformat(day) for day in values]
    return (max(days) - min(days)).days


def _printing(value: str, field: Field) -> str:
    """A program that prints the value, rounded to one decimal unless it is whole."""
    return f"{{}}\nprint({value})" if field.type.kind == "whole" else f"{{}}\nprint(round({value}, 1))"


def _totals(field: Field) -> dict[str, Measure]:
    """Measures of which the request states no rounding."""
    if field.type.kind == "date":
        words = Words(en=f"number of days between the earliest and the latest {field.label.en}", zh=f"最早与最晚{field.label.zh}相隔的天数")
        code = "from datetime import date\n{}\ndays = [date.fromisoformat(day) for day in values]\nprint((max(days) - min(days)).days)"
        return {f"{field.name}_days": Measure(words, (field,), code, _days)}
    measures = {}
    if isinstance(field.spec, schema.MoneyField) or getattr(field.spec, "unit", "") in _SUMMED:
        words = Words(en=f"total {field.label.en}", zh=f"{field.label.zh}总和")
        code = _printing("sum(values)", field)
        measures[f"{field.name}_total"] = Measure(words, (field,), code, lambda values: round(sum(values), 1))
    words = Words(en=f"difference between the highest and the lowest {field.label.en}", zh=f"{field.label.zh}最高与最低之差")
    code = _printing("max(values) - min(values)", field)
    measures[f"{field.name}_range"] = Measure(words, (field,), code, lambda values: round(max(values) - min(values), 1))
    return measures


def _averages(field: Field) -> dict[str, Measure]:
    """Measures that are rounded to two decimals."""
    if field.type.kind == "date":
        return {}

    def measure(function: str, wrong_function: str, english: str, chinese: str) -> Measure:
        def compute(name: str) -> Callable[[Sequence[Any]], float]:
            return lambda values: round(getattr(statistics, name)(values), 2)

        code = f"import statistics\n{{}}\nprint(round(statistics.{function}(values), 2))"
        wrong = compute(wrong_function)
        return Measure(Words(en=english, zh=chinese), (field,), code, compute(function), lambda values: (wrong(values),))

    label = field.label
    return {
        f"{field.name}_mean": measure("mean", "median", f"average {label.en}", f"平均{label.zh}"),
        f"{field.name}_median": measure("median", "mean", f"median {label.en}", f"{label.zh}的中位数"),
        f"{field.name}_deviation": measure(
            "pstdev", "stdev", f"population standard deviation of the {label.en}", f"{label.zh}的总体标准差"
        ),
    }


def _product(price: Field, count: Field) -> Measure:
    words = Words(en=f"sum of {price.label.en} times {count.label.en}", zh=f"{price.label.zh}乘以{count.label.zh}的总和")
    code = _printing("sum(price * count for price, count in values)", price)
    return Measure(words, (price, count), code, lambda values: float(sum(one * many for one, many in values)))


def _share(field: Field, bound: float) -> Measure:
    """The percentage of the values above a bound, with one decimal; the wrong answer is that of the others."""

    def run(values: Sequence[Any]) -> float:
        return float(round(100 * sum(value > bound for value in values) / len(values), 1))

    words = Words(en=f"percentage with {field.label.en} above the bound", zh=f"{field.label.zh}超过界限的百分比")
    code = f"{{}}\nprint(round(100 * sum(value > {bound} for value in values) / len(values), 1))"
    return Measure(words, (field,), code, run, lambda values: (round(100 - run(values), 1),))


# ---- intents ------------------------------------------------------------------------------------------------------------------------


class ComputeIntent(SpecIntent):
    """A measure over rows.

    measures: by name; a slot names one, if there are several.
    ending: the words of a request that ask for rounding.
    more_slots: slots after those of the rows.
    """

    def __init__(
        self,
        domain: Domain,
        name: str,
        rows: RowList,
        measures: Mapping[str, Measure],
        ending: Words | None = None,
        more_slots: Sequence[KindedSlot] = (),
    ) -> None:
        self.rows, self.measures, self.ending = rows, measures, ending
        slots = [*rows.slots, *more_slots]
        if len(measures) > 1:
            slots.append(make_slot("aspect", words_kind(f"{name}.aspect", {key: each.words for key, each in measures.items()})))
        super().__init__(domain, name, "compute", slots)
        self.steps = rows.steps

    def shape(self, slot_names: frozenset[str]) -> Shape:
        reads = super().shape(slot_names).calls
        return Shape((*reads, (CODE_TOOL, (len(reads) - 1,))))

    def has_conflict(self, slot_names: frozenset[str]) -> bool:
        return False

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        draft = PlanDraft(self.spec_domain, state)
        shown, measure = self.rows.show(draft, slots), self._measure(slots)
        code, result, wrong = _compute(measure, shown)
        if self._is_shown(shown, slots, code, result):
            raise misfit("the number stands there already")
        draft.calls.append(Call(tool=CODE_TOOL, arguments={"code": code}))
        draft.evidence += [row_fact(str(row["id"])) for row in shown.rows]
        fact = Fact(kind="exact", value=f"{result:.15g}", rivals=tuple(f"{value:.15g}" for value in wrong if value != result))
        return draft.solution(self._answer(measure, result, language), facts=(fact,))

    def _measure(self, slots: Slots) -> Measure:
        return self.measures[slots["aspect"]] if "aspect" in slots else next(iter(self.measures.values()))

    def _answer(self, measure: Measure, result: float, language: Language) -> str:
        number = f"{result:.15g}"
        if isinstance(measure.fields[0].spec, schema.MoneyField):
            currency = self.spec_domain.spec.head.currency
            number = text_in(language, f"{number} {currency}", f"{number}{CURRENCIES_ZH[currency]}")
        return text_in(language, f"The {measure.words.en} is {number}.", f"{measure.words.zh}是{number}。")

    def _is_shown(self, shown: ShownRows, slots: Slots, code: str, result: float) -> bool:
        """Whether the prompt, the request, an observation or the code already contains the result, exactly or nearly."""
        texts = [*shown.texts, *(str(value) for value in slots.values()), code]
        numbers = [*_prompt_numbers(self.spec_domain), *(number for text in texts for number in _numbers_in(text))]
        return abs(result) < 1 or any(is_near(result, number) or is_near(number, result) for number in numbers)

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        for row_slots in self.rows.propose(state, given, rng):
            shown = self.rows.show(PlanDraft(self.spec_domain, state), row_slots)
            for more in self._draw_question(shown, given, rng):
                slots = {**row_slots, **more}
                code, result, _ = _compute(self._measure(slots), shown)
                if not self._is_shown(shown, slots, code, result):
                    return slots
        return None

    def _draw_question(self, shown: ShownRows, given: Slots, rng: random.Random) -> Iterator[dict[str, JSON]]:
        """The slots beside those of the rows, in random order."""
        names = [given["aspect"]] if "aspect" in given else rng.sample(list(self.measures), len(self.measures))
        for name in names:
            yield {"aspect": name} if len(self.measures) > 1 else {}

    def templates(self, language: Language) -> list[str]:
        words = "{aspect}" if len(self.measures) > 1 else next(iter(self.measures.values())).words[language]
        phrases = [(lead, text_in(language, f"the {words} of {rows}", f"{rows}的{words}")) for lead, rows in self.rows.phrases(language)]
        ending = self.ending[language] if self.ending is not None else ""
        requests = [join_lead(lead, form.replace("{}", text) + ending, language) for form in _ORDERS[language] for lead, text in phrases]
        return [*questions(phrases, language, ending), *requests]


class ShareIntent(ComputeIntent):
    """What percentage of the rows has a value above a bound?"""

    def __init__(self, domain: Domain, name: str, rows: RowList, field: Field) -> None:
        self.field = field
        bound = make_slot("bound", value_kind(domain, rows.entity.name, field))
        super().__init__(domain, name, rows, {"share": _share(field, 0)}, _ONE_DECIMAL, (bound,))

    def _measure(self, slots: Slots) -> Measure:
        return _share(self.field, slots["bound"])

    def _answer(self, measure: Measure, result: float, language: Language) -> str:
        return text_in(language, f"It is {result:.15g} percent.", f"占百分之{result:.15g}。")

    def _draw_question(self, shown: ShownRows, given: Slots, rng: random.Random) -> Iterator[dict[str, JSON]]:
        values = _values(shown, (self.field,))
        usual = usual_values(self.field.spec)
        bounds = [given["bound"]] if "bound" in given else [bound for bound in usual if min(values) < bound < max(values)]
        for bound in rng.sample(bounds, len(bounds)):
            yield {"bound": bound}

    def templates(self, language: Language) -> list[str]:
        label, phrases = self.field.label[language], self.rows.phrases(language)
        forms = _SHARE_FORMS[language]
        return [join_lead(lead, form.format(rows=rows, label=label), language) for form in forms for lead, rows in phrases]


@lru_cache(maxsize=1024)
def _numbers_in(text: str) -> tuple[float, ...]:
    """All values that numbers of the text may mean, in figures or in words."""
    plain = normalise(text)
    numbers = (*numbers_in(plain, also_parts=True), *numbers_in(words_to_digits(plain)))
    return tuple({reading for number in numbers for reading in number.readings})


@lru_cache(maxsize=256)
def _prompt_numbers(domain: Domain) -> tuple[float, ...]:
    return _numbers_in(system_prompt(domain))


def _compute(measure: Measure, shown: ShownRows) -> tuple[str, float, tuple[float, ...]]:
    """The program, its output, and wrong answers."""
    values = _values(shown, measure.fields)
    return measure.code.format(f"values = {values!r}"), measure.run(values), measure.rivals(values)


def _values(shown: ShownRows, fields: Sequence[Field]) -> list[Any]:
    """The values that the rows show: of one field, or tuples of several."""
    if len(fields) == 1:
        return [row[fields[0].name] for row in shown.rows]
    return [tuple(row[each.name] for each in fields) for row in shown.rows]


# ---- the intents of a domain --------------------------------------------------------------------------------------------------------


def compute_intents(domain: Domain) -> Iterator[SpecIntent]:
    """All compute intents that a domain could have; not checked is whether their tasks can be solved."""
    for entity in domain.by_number:
        fields = [each for each in entity.fields.values() if _is_wide(each)]
        if not fields:
            continue
        owner = next((each for each in entity.owners() if each.place >= 0), None)
        if owner is not None and entity.spec.rows >= 2 * domain.entities[owner.type.entity].spec.rows:
            rows, name = OwnedRows(domain, entity, owner, None), f"{entity.name}_of_{owner.name}"
            yield from _totals_and_averages(domain, name, rows, fields)
            yield from _share_and_product(domain, name, rows, fields)
            owner_name = searched_name(domain.entities[owner.type.entity])
            averages = _measures(_averages, fields)
            if owner_name is not None and averages:
                rows = OwnedRows(domain, entity, owner, owner_name)
                yield ComputeIntent(domain, f"average_{entity.name}_of_named_{owner.name}", rows, averages, _TWO_DECIMALS)
        first = first_rows(domain, entity)
        if first is not None:
            yield from _totals_and_averages(domain, f"first_{entity.name}", first, fields)


def _totals_and_averages(domain: Domain, name: str, rows: RowList, fields: Sequence[Field]) -> Iterator[SpecIntent]:
    totals, averages = _measures(_totals, fields), _measures(_averages, fields)
    if totals:
        yield ComputeIntent(domain, f"total_{name}", rows, totals)
    if averages:
        yield ComputeIntent(domain, f"average_{name}", rows, averages, _TWO_DECIMALS)


def _share_and_product(domain: Domain, name: str, rows: RowList, fields: Sequence[Field]) -> Iterator[SpecIntent]:
    numbers = [each for each in fields if each.type.is_number]
    if numbers:
        yield ShareIntent(domain, f"share_{name}", rows, numbers[0])
    prices = [each for each in numbers if isinstance(each.spec, schema.MoneyField) and each.name.endswith(PRICE_WORDS)]
    counts = [each for each in rows.entity.fields.values() if _is_counted(each)]
    if prices and counts:
        yield ComputeIntent(domain, f"worth_{name}", rows, {"worth": _product(prices[0], counts[0])})


def _measures(make: Callable[[Field], dict[str, Measure]], fields: Sequence[Field]) -> dict[str, Measure]:
    return {name: measure for each in fields for name, measure in make(each).items()}


def _is_wide(field: Field) -> bool:
    """Whether lists show a field, and its values have a range in which a computed number is another one."""
    spec = field.spec
    if spec.detail:
        return False
    if isinstance(spec, schema.DateField):
        return bool(spec.last - spec.first >= _MIN_RANGE)
    return isinstance(spec, _NUMBERS) and bool(spec.max - spec.min >= _MIN_RANGE)


def _is_counted(field: Field) -> bool:
    return not field.spec.detail and isinstance(field.spec, schema.IntegerField) and field.spec.unit in _COUNTED
