"""Given signatures: tools under the names and parameters of a catalogue; calls are translated; what does not fit is named."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from synth.tasks.assessment import assess
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.yaml_text import parse_text

SPEC = parse_text("""
domain: forms
languages: [en]
about: a service for online forms
entities:
  form:
    noun: form
    id: f###
    rows: 60
    tools: [get, search]
    fields:
      title: {type: name, label: title, open: true, list: company}
      topic: {type: choice, label: topic, filter: equal, values: {work: work, sport: sport, music: music}}
      places: {type: integer, label: number of places, min: 1, max: 90}
      state: {type: choice, label: state, filter: none, values: {open: open, closed: closed}}
actions:
  add:
    verb: add a form
    takes: {title: {type: name, like: form.title, label: title, phrase: called _, default: untitled}}
    creates: {form: {title: title, topic: work, places: 10, state: open}}
  close:
    verb: close
    on: form
    needs: [{if: form.state == open, else: the form is closed already}]
    sets: {form.state: closed}
  rename:
    verb: rename
    on: form
    takes: {title: {type: name, like: form.title, label: title, phrase: to _}}
    needs: [{if: form.title != title, else: it is called so already}]
    sets: {form.title: title}
signatures:
  get_form: {tool: forms-7.Form-get, about: Gets a form., takes: {formId: {argument: form, type: integer}, verbose: {unused: boolean}}}
  search_forms: {tool: forms-7.Form-list, takes: {q: title, tags: {argument: topic, type: array}}}
  add: {tool: forms-7.Form-add, takes: {body: {argument: title, type: object}}}
  close: {tool: forms-7.Form-close, takes: {formId: form, mode: {always: final}}}
  rename: {tool: forms-7.Form-rename, takes: {formId: form, newTitle: title}}
""")


def changed(**signatures: Any) -> Any:
    spec = copy.deepcopy(SPEC)
    spec["signatures"].update(signatures)
    return spec


def problems_of(spec: Any) -> str:
    with pytest.raises(SpecError) as refused:
        compile_spec(spec)
    return "\n".join(map(str, refused.value.problems))


def test_tools_have_the_given_ids_and_parameters() -> None:
    world = compile_spec(SPEC)
    tools = {tool.id: tool for tool in world.tools}
    assert list(tools)[:5] == ["forms-7.Form-get", "forms-7.Form-list", "forms-7.Form-add", "forms-7.Form-close", "forms-7.Form-rename"]
    assert world.tools_are_given and tools["forms-7.Form-get"].description == "Gets a form."
    get, listed = tools["forms-7.Form-get"].parameters, tools["forms-7.Form-list"].parameters
    assert get["required"] == ["formId"] and get["properties"]["formId"]["type"] == "integer"
    assert get["properties"]["verbose"] == {"type": "boolean"}
    assert set(listed["properties"]) == {"q", "tags"}, "no limit, no sort, no filter that is not named"
    assert tools["forms-7.Form-close"].parameters["required"] == ["formId", "mode"]


def test_calls_are_translated_and_checked() -> None:
    world = compile_spec(SPEC)(seed=1)
    row = json.loads(world.call("Form-get", {"formId": 3, "verbose": True}).content)
    assert row["id"] == "f003"
    found = json.loads(world.call("Form-list", {"tags": [row["topic"]], "q": row["title"]}).content)
    assert found["forms_found"] == 1 and found["rows"][0]["id"] == "f003"
    assert world.call("Form-list", {"tags": ["work", "sport"]}).is_error, "a list of one"
    assert world.call("Form-get", {"formId": 500}).content == '{"error":"no such form"}'
    assert world.call("Form-close", {"formId": "f003", "mode": "maybe"}).is_error
    assert "get_form" not in {tool.name for tool in world.tools} and world.call("get_form", {"form": "f003"}).is_error
    created = json.loads(world.call("Form-add", {"body": {"title": "Picnic"}}).content)
    assert created["done"] == "Form-add" and created["rows"][0]["title"] == "Picnic"
    assert json.loads(world.call("Form-add", {}).content)["rows"][0]["title"] == "untitled"


def test_its_tasks_are_admitted_with_plans_under_the_given_names() -> None:
    world = compile_spec(SPEC)
    assessment = assess(world, 120, seed=0)
    assert assessment.share == 1.0
    live = world(seed=3)
    slots = live.draw_slots("close", frozenset({"form"}), random.Random(0))
    (shown,) = world.intents["ask_form"].solve(live, {"form": "f012", "aspect": "places"}, "en").plan.calls
    assert (shown.tool, shown.arguments) == ("Form-get", {"formId": 12})
    (call,) = world.intents["close"].solve(live, slots, "en").plan.calls
    assert (call.tool, call.arguments) == ("Form-close", {"formId": slots["form"], "mode": "final"})


def test_a_spec_with_signatures_may_be_small_and_gives_one_for_every_tool() -> None:
    compile_spec(SPEC)  # one entity, 60 rows, 4 tools, no rule
    without = copy.deepcopy(SPEC)
    del without["signatures"]["close"]
    assert "signatures.close: is missing" in problems_of(without)
    assert "no tool 'delete'" in problems_of(changed(delete={"tool": "forms-7.x"}))


@pytest.mark.parametrize(
    ("signature", "problem"),
    [
        ({"tool": "Form-get", "takes": {"formId": "form"}}, "write it as server.name"),
        ({"tool": "forms-7.g", "takes": {}}, "nothing stands for form, which get_form needs"),
        ({"tool": "forms-7.g", "takes": {"a": "form", "b": "form"}}, "a stands for 'form' already"),
        ({"tool": "forms-7.g", "takes": {"a": "from"}}, "takes no 'from'; did you mean 'form'"),
        ({"tool": "forms-7.g", "takes": {"a": "form", "b": {"always": "x", "type": "integer"}}}, "'x' does not go with type integer"),
        ({"tool": "forms-7.g", "takes": {"a": {"argument": "form", "type": "boolean"}}}, "'form' is a string here"),
        ({"tool": "forms-7.g", "takes": {"a": {"argument": "form", "unused": "string"}}}, "write the name of a parameter here"),
        ({"tool": "forms-7.Form-list", "takes": {"a": "form"}}, "is called Form-list already"),
    ],
)
def test_what_does_not_fit_is_named(signature: Any, problem: str) -> None:
    assert problem in problems_of(changed(get_form=signature))


def test_chinese_descriptions_of_a_catalogue_are_left_as_they_are() -> None:
    signature = {**SPEC["signatures"]["close"], "about": "关闭表单。"}
    assert any(tool.description == "关闭表单。" for tool in compile_spec(changed(close=signature)).tools)
