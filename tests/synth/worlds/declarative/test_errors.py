"""What a person is told of a broken spec: where, what is wrong, what to do; all of it at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.yaml_text import MAX_BYTES, parse_text

TEXT = files("synth.worlds.declarative").joinpath("starter.yaml").read_text(encoding="utf-8")


def problems(change: Callable[[Any], object]) -> list[str]:
    raw = copy.deepcopy(parse_text(TEXT))
    change(raw)
    with pytest.raises(SpecError) as caught:
        compile_spec(raw)
    return [str(problem) for problem in caught.value.problems]


def renew(raw: Any) -> Any:
    return raw["actions"]["renew_loan"]


def loan(raw: Any) -> Any:
    return raw["entities"]["loan"]


def rule(name: str, condition: str) -> Callable[[Any], object]:
    return lambda raw: renew(raw)["rules"][name].update({"if": condition})


def sets(target: str, value: str) -> Callable[[Any], object]:
    return lambda raw: renew(raw)["sets"].update({target: value})


def takes(param: dict[str, str]) -> Callable[[Any], object]:
    return lambda raw: renew(raw)["takes"].update(more={"label": "more / 其他", **param})


def _snakes(raw: Any) -> None:
    """A business with a python, in which looking is called running."""
    raw["naming"] = {"get": "run"}
    age = {"type": "integer", "min": "1", "max": "60", "label": "age / 年龄"}
    raw["entities"]["python"] = {"noun": "python / 蟒蛇", "id": "p##", "rows": "9", "fields": {"age": age}}


BRACKETS = "brackets and braces stand for what a request fills in; leave it out or use ( )"
RULES = "actions.renew_loan.rules"
GOLDEN: list[tuple[Callable[[Any], object], str]] = [
    (rule("renewal_limit", "loan.renewal < 2"), f"{RULES}.renewal_limit.if: no field 'renewal' of loan; did you mean 'renewals'?"),
    (
        lambda raw: renew(raw)["needs"][0].update({"if": "loan.status == outt"}),
        "actions.renew_loan.needs[0].if: no value 'outt'; did you mean 'out'?",
    ),
    (
        sets("loan.due", "loan.due + loan.due"),
        "actions.renew_loan.sets.loan.due: 'loan.due + loan.due': a date and a date do not go together",
    ),
    (
        sets("loan.renewals", "loan.renewals / 2"),
        "actions.renew_loan.sets.loan.renewals: 'loan.renewals / 2' is a number, expected a whole number; use round(...)",
    ),
    (
        sets("loan.colour", "1"),
        "actions.renew_loan.sets.loan.colour: no field 'colour' of loan; there are due, kind, member, renewals, status, tool",
    ),
    (
        rule("not_overdue", "__import__('os').system('true')"),
        f"{RULES}.not_overdue.if: no function \"__import__('os').system\"; there are abs, count, days_since, days_until, max, min, round",
    ),
    (
        rule("not_overdue", "[x for x in loan]"),
        f"{RULES}.not_overdue.if: '[x for x in loan]' is not part of the language (docs/worlds.md lists what is)",
    ),
    (
        rule("renewal_limit", "loan.renewals < 9"),
        f"{RULES}.renewal_limit: forbids no task: `loan.renewals < 9` is true for all 90 loans (loan.renewals is 0 to 3); "
        "raise `entities.loan.fields.renewals.max` to 9 or more, or change the condition",
    ),
    (lambda raw: renew(raw).update(set=renew(raw).pop("sets")), "actions.renew_loan.set: unknown key; did you mean 'sets'?"),
    (
        lambda raw: loan(raw)["fields"]["member"].update(to="members"),
        "entities.loan.fields.member.to: no entity 'members'; did you mean 'member'?",
    ),
    (
        lambda raw: loan(raw)["fields"]["due"].update(type="day"),
        "entities.loan.fields.due.type: no type 'day'; there are choice, date, flag, integer, money, name, number, ref, time",
    ),
    (lambda raw: loan(raw).pop("noun"), "entities.loan.noun: is missing; what one of them is called, as: english / 中文"),
    (
        lambda raw: loan(raw).update(noun="loan"),
        "entities.loan.noun: write it in both languages, as: english / 中文, or say `languages: [en]` at the top "
        "for a world of English alone",
    ),
    (lambda raw: loan(raw).update(id="m###"), "entities.loan.id: 'm' is that of member already; take another"),
    (
        lambda raw: raw["actions"]["lend_tool"]["creates"]["loan"].pop("due"),
        "actions.lend_tool.creates.loan: a new loan also needs due",
    ),
    (
        lambda raw: raw["info"][0].update(answer="10:00"),
        "info[0]: answer: the words must contain it as it stands: '10:00'",
    ),
    (
        rule("renewal_limit", "loan.renewals = 1"),
        f"{RULES}.renewal_limit.if: not an expression: 'loan.renewals = 1'; compare with == (one = stands only in count(...))",
    ),
    (
        rule("not_overdue", "(loan if days > 7 else loan).due >= today"),
        f"{RULES}.not_overdue.if: '(loan if days > 7 else loan).due': which row that is shows nowhere; "
        "put the `if` around it: a.due if ... else b.due",
    ),
    (
        lambda raw: loan(raw)["fields"]["due"].update(type="text"),
        "entities.loan.fields.due.type: no type 'text'; write choice (one of a few values) or name (a proper name)",
    ),
    (
        takes({"type": "text"}),
        "actions.renew_loan.takes.more.type: no type 'text'; write choice (one of a few values) or name (a proper name)",
    ),
    (
        lambda raw: raw["entities"]["branch"]["fields"].update(colour={"type": "flag"}),
        "entities.branch.fields.colour.label: is missing; what people call it, as: english / 中文",
    ),
    (lambda raw: loan(raw).update(noun="loan [x] / 借单"), f"entities.loan.noun: no [ in words: {BRACKETS}"),
    (lambda raw: loan(raw).update(plural="lo{ans"), f"entities.loan.plural: no {{ in words: {BRACKETS}"),
    (
        lambda raw: renew(raw).update(says=["keep {loan} for {days / {loan}再借{days}"]),
        "actions.renew_loan.says[0].en: brackets do not match; write parameters as {name}, what may be left out in [ ]",
    ),
    (lambda raw: raw.update(today="0012-01-01"), "today: 0012-01-01 is out of reach; take a day from 1970 to 2100"),
    (lambda raw: raw.update(today="20"), "today: '20' is no day; write it as 2026-05-13"),
    (lambda raw: loan(raw).update(rows="many"), "entities.loan.rows: 'many' is not a whole number; write digits, e.g. 30"),
    (
        lambda raw: loan(raw)["fields"]["status"].update(weights={"out": "inf"}),
        "entities.loan.fields.status.weights.out: 'inf' is not a number; write digits, e.g. 2.5",
    ),
    (
        lambda raw: loan(raw)["fields"]["status"].update(weights={"out": "1e300"}),
        "entities.loan.fields.status: weights: from 0 to 1,000,000, and one at least above 0",
    ),
    (
        lambda raw: loan(raw)["fields"].update(weight={"type": "number", "min": "0", "max": "9", "step": "nan", "label": "weight / 重量"}),
        "entities.loan.fields.weight.step: 'nan' is not a number; write digits, e.g. 2.5",
    ),
    (
        lambda raw: loan(raw)["fields"].update(weight={"type": "number", "min": "0", "max": "9", "step": "0.25", "label": "weight / 重量"}),
        "entities.loan.fields.weight: min, max and step have one decimal at most",
    ),
    (
        takes({"type": "time", "default": "25:00"}),
        "actions.renew_loan.takes.more.default: '25:00' is no full or half hour from 08:00 to 18:00",
    ),
    (
        takes({"type": "number", "min": "0", "max": "5", "default": "nan"}),
        "actions.renew_loan.takes.more.default: nan is not between 0.0 and 5.0",
    ),
    (takes({"type": "flag", "default": "maybe"}), "actions.renew_loan.takes.more.default: 'maybe' is neither true nor false"),
    (
        takes({"type": "choice", "like": "loan.kind", "default": "week"}),
        "actions.renew_loan.takes.more.default: no value 'week'; did you mean 'weekly'?",
    ),
    (takes({"type": "ref", "to": "tool", "default": "t001"}), "actions.renew_loan.takes.more.default: a tool has no default; leave it out"),
    (_snakes, "naming: a tool would be called run_python, as the one for programs is; take other verbs or a prefix"),
]


@pytest.mark.parametrize(("change", "told"), GOLDEN)
def test_a_problem_is_told_with_its_place_and_a_remedy(change: Callable[[Any], object], told: str) -> None:
    assert problems(change) == [told]


def test_all_problems_are_told_at_once() -> None:
    def break_much(raw: Any) -> None:
        for change, _ in GOLDEN[:3]:
            change(raw)
        raw["entities"]["tool"]["fields"]["fee"]["min"] = "fifty"
        loan(raw)["colour"] = "red"

    structure = problems(break_much)
    assert structure == [
        "entities.tool.fields.fee.min: 'fifty' is not a whole number; write digits, e.g. 30",
        "entities.loan.colour: unknown key; there are called, fields, group, grows, id, measure, noun, person, plural, rows, "
        "rows_from, tools",
    ]
    rest = problems(lambda raw: [change(raw) for change, _ in GOLDEN[:3]])
    assert rest == [GOLDEN[1][1], GOLDEN[0][1], GOLDEN[2][1]]


def test_too_little_is_refused_with_what_is_missing() -> None:
    def shrink(raw: Any) -> None:
        raw["entities"] = {"branch": raw["entities"]["branch"]}
        raw["actions"] = {"open_branch": {"verb": "open / 开放", "on": "branch", "sets": {"branch.opens": "'09:00'"}}}

    assert problems(shrink) == [
        "entities: 1 of them; a business needs at least 3",
        "entities: 8 rows in all (branch 8); at least 200 are needed: raise `rows`",
        "actions: 2 tools in all; at least 8 are needed: add actions",
        "actions: 0 business rules; at least 2 are needed: add `rules` to actions",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("domain: x\ndomain: y\n", "line 2: the key 'domain' is given twice; keep one"),
        ("a: &x [1]\nb: *x\n", "line 1: anchors and aliases (& and *) are not taken; write it out"),
        ("a: [1\n", "line 2: not valid YAML: did not find expected ',' or ']'"),
        ("x: " + "a" * MAX_BYTES, "larger than 256 KiB; a spec of one business is a few hundred lines"),
        (
            "domain: x\n---\ndomain: y\n",
            "line 2: a second document begins (---); a file holds one business, put the other into a file of its own",
        ),
        ("[" * 50_000, "line 1: nested too deeply"),
        ("- a\n", "expected keys and values (domain, languages, about, today"),
    ],
)
def test_a_text_that_is_no_spec_is_refused(text: str, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        compile_spec(parse_text(text))
    assert [str(problem)[: len(told)] for problem in caught.value.problems] == [told]


def test_words_that_yaml_takes_for_something_else_stay_words() -> None:
    """`on`, `no`, a day and a time of day are text until the schema says what they are."""
    assert parse_text("{on: no, day: 2026-05-13, time: 09:30, rows: 012}") == {
        "on": "no",
        "day": "2026-05-13",
        "time": "09:30",
        "rows": "012",
    }
