"""Specs as a newcomer breaks them: each problem is said once, with what to do, and a problem that another one causes is not said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from synth.worlds.declarative.compile import compile_file
from synth.worlds.declarative.language.problems import FOLLOWS, ROOT, Problem, SpecError, causes_of
from synth.writing.new_spec import new_spec

STARTER = new_spec(["en"])
BILINGUAL = new_spec(["en", "zh"])
RULE = "actions.renew_loan.rules"
VET = """
domain: vet
about: a practice that treats pets
entities:
  vet:
    noun: vet
    id: v##
    rows: 40
    fields:
      name: {type: name, list: person, label: name}
      field: {type: choice, label: field, values: {cats: cats, dogs: dogs}}
  pet:
    noun: pet
    id: p###
    rows: 90
    fields:
      age: {type: integer, min: 1, max: 15, label: age}
  appointment:
    noun: appointment
    id: a###
    rows: 80
    called: kind
    fields:
      pet: {type: ref, to: pet, owned: true}
      vet: {type: ref, to: vet}
      kind: {type: choice, label: kind, values: {check: check-up, surgery: surgery}}
      day: {type: date, from: 0, to: 20, label: day}
      status: {type: choice, label: status, values: {open: open, cancelled: cancelled}, weights: {open: 5}}
actions:
  book:
    verb: book an appointment for _
    takes: {pet: pet, vet: vet, day: {type: date, from: 1, to: 20, label: day, phrase: on _}}
    rules:
      one_at_a_time: {if: "count(appointment, pet=pet) < 2", words: A pet can have at most two appointments.}
    creates:
      appointment: {pet: pet, vet: vet, kind: check, day: day, status: open}
  cancel:
    verb: cancel
    on: appointment
    needs: [{if: appointment.status == open, else: it is cancelled}]
    rules:
      in_time: {if: appointment.day > today, words: An appointment of today cannot be cancelled.}
    sets: {appointment.status: cancelled}
  move:
    verb: move
    on: appointment
    takes: {day: {type: date, from: 1, to: 20, label: day, phrase: to _}}
    sets: {appointment.day: day}
"""


def replaced(old: str, new: str, text: str = STARTER) -> str:
    assert old in text
    return text.replace(old, new)


BROKEN: dict[str, tuple[str, str]] = {
    "a missing key": (replaced("    verb: renew\n", ""), "actions.renew_loan.verb: is missing; what the action is called, in English"),
    "a misspelt section": (replaced("\nentities:", "\nentites:"), "entites: unknown key; did you mean 'entities'?"),
    "an entity that there is not": (
        replaced("{type: ref, to: tool}", "{type: ref, to: tol}"),
        "entities.loan.fields.tool.to: no entity 'tol'; did you mean 'tool'?",
    ),
    "a rule that no range reaches": (
        replaced("loan.renewals < 2", "loan.renewals < 9"),
        f"{RULE}.renewal_limit: forbids no task: `loan.renewals < 9` is true for all 90 loans (loan.renewals is 0 to 3); raise "
        "`entities.loan.fields.renewals.max` to 9 or more, or change the condition",
    ),
    "a rule about a day that no row has": (
        replaced("{type: date, from: -10, to: 20", "{type: date, from: 1, to: 20"),
        f"{RULE}.not_overdue: forbids no task: `loan.due >= today` is true for all 90 loans (loan.due is 2026-05-14 to 2026-06-02); give "
        "`entities.loan.fields.due` other values, or change the condition",
    ),
    "a count that no owner reaches": (
        VET,
        "actions.book.rules.one_at_a_time: forbids no task: `count(appointment, pet=pet) < 2` is true for all 90 pets: 80 appointments "
        "for 90 pets, so no pet has 2 (the most is 1); set `entities.appointment.rows` to 91 or more, or `entities.pet.rows` to 79 "
        "or fewer, or lower the number in the condition",
    ),
    "an action that needs what never is": (
        replaced("loan.status == out", "loan.status == lost").replace(
            "{out: out, returned: returned}, weights: {out: 4}", "{out: out, returned: returned, lost: lost}, weights: {out: 4, lost: 0}"
        ),
        "actions.renew_loan and 1 more place: can hardly ever be done: `loan.status == lost` (needs[0]) is false for all 90 loans "
        "(loan.status is out, returned); give `entities.loan.fields.status` other values, or change the condition",
    ),
    "too few rows": (
        replaced("rows: 100", "rows: 9"),
        "entities: 167 rows in all (branch 8, member 60, tool 9, loan 90); at least 200 are needed: raise `rows`",
    ),
    "one language in a spec of two": (
        replaced("noun: loan / 借单", "noun: loan", BILINGUAL).replace("verb: renew / 续借", "verb: renew"),
        "entities.loan.noun and 1 more place: write it in both languages, as: english / 中文, or say `languages: [en]` at the top "
        "for a world of English alone",
    ),
    "English twice": (
        replaced("verb: return / 归还", "verb: return / return", BILINGUAL),
        "actions.return_tool.verb: the Chinese words contain English; translate it, or say `languages: [en]` at the top "
        "and write English alone",
    ),
    "an operator of another language": (
        replaced("loan.renewals < 2", "loan.renewals < 2 && loan.status == out"),
        f"{RULE}.renewal_limit.if: not an expression: 'loan.renewals < 2 && loan.status == out'; write and, or, not",
    ),
    "a name that is nothing": (
        replaced("loan.due + days", "loan.due + day"),
        "actions.renew_loan.sets.loan.due: unknown name 'day'; did you mean 'days'?",
    ),
    "a tab": (
        replaced("  branch:\n    noun", "  branch:\n\tnoun"),
        "line 11: begins with a tab; YAML is indented with spaces: write spaces in its place",
    ),
    "a colon in a text": (
        replaced("words: An overdue loan", "words: Overdue: a loan"),
        'line 71: not valid YAML: a text with a colon needs quotes: "..."; or the line is not indented like the one above',
    ),
    "an id of two entities": (replaced("id: l###", "id: m###"), "entities.loan.id: 'm' is that of member already; take another"),
    "an action given twice": (replaced("  return_tool:", "  renew_loan:"), "line 77: the key 'renew_loan' is given twice; keep one"),
    "a type of another language": (
        replaced("{type: name, list: person, label: name}", "{type: string, label: name}"),
        "entities.member.fields.name.type: no type 'string'; write choice (one of a few values) or name (a proper name)",
    ),
    "values in a list": (
        replaced("values: {basic: basic, plus: plus}", "values: [basic, plus]"),
        "entities.member.fields.level.values: write keys and values here, e.g. {first: one, second: two}",
    ),
    "nothing": ("# to do\n", "holds nothing; `headrace worlds new FILE` writes a spec to start from"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_spec_names_its_one_cause(name: str, tmp_path: Path) -> None:
    text, told = BROKEN[name]
    path = tmp_path / "my.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        compile_file(path)
    assert [str(cause) for cause in causes_of(caught.value.problems)] == [told]


@pytest.mark.parametrize(
    ("remedy", "told"),
    [
        (lambda text: text.replace("rows: 80", "rows: 91"), ""),
        (lambda text: text.replace("rows: 90", "rows: 79").replace("rows: 40", "rows: 60"), ""),
        (lambda text: text.replace("rows: 80", "rows: 90"), "90 appointments for 90 pets, so no pet has 2"),
    ],
)
def test_the_numbers_of_a_remedy_are_the_least_that_help(remedy: Callable[[str], str], told: str, tmp_path: Path) -> None:
    """Given too few appointments for a rule on two of a pet, then the numbers that the message names help, and those beside them do not."""
    path = tmp_path / "my.yaml"
    path.write_text(remedy(VET), encoding="utf-8")
    if not told:
        assert "book_against_one_at_a_time" in compile_file(path).intents
        return
    with pytest.raises(SpecError, match=told):
        compile_file(path)


@pytest.mark.parametrize(
    ("condition", "remedy"),
    [
        ("loan.renewals <= 9", "raise `entities.loan.fields.renewals.max` to 10 or more"),
        ("loan.renewals >= 0", "lower `entities.loan.fields.renewals.min` to -1 or less"),
        ("loan.renewals > -1", "give `entities.loan.fields.renewals` other values"),
        ("loan.renewals + 1 < 9", "give `entities.loan.fields.renewals` other values"),
    ],
)
def test_the_range_that_a_rule_needs_is_named_where_it_compares_with_a_number(condition: str, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(replaced("loan.renewals < 2", condition), encoding="utf-8")
    with pytest.raises(SpecError, match=remedy.replace(".", r"\.")):
        compile_file(path)


def test_causes_that_make_others_come_first_and_equal_problems_are_one() -> None:
    problems = [
        Problem("entities", "is missing", FOLLOWS),
        Problem("a", "is wrong"),
        *(Problem(place, "write it in both languages") for place in "bcd"),
        Problem("e", "unknown key", ROOT),
    ]
    causes = causes_of(problems)
    assert [str(cause) for cause in causes] == [
        "e: unknown key",
        "b and 2 more places: write it in both languages",
        "a: is wrong",
        "entities: is missing",
    ]
    assert causes[1].lines()[1:] == ["    the other places: c, d"]


def test_the_one_line_of_a_refusal_names_the_first_cause_how_many_more_and_the_command() -> None:
    problems = [Problem("a.b", "x" * 500), Problem("c", "is wrong"), Problem("d", "is wrong")]
    message = str(SpecError(problems, "my.yaml"))
    assert message.startswith("my.yaml: a.b: xxx")
    assert message.endswith(" ...; 1 more problem; for more: headrace worlds check my.yaml")
    assert len(message) < 320
