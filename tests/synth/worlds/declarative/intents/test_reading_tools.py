"""Reading tools of a spec's own: what they show and find, the questions that they answer, and what does not go with them."""

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
domain: tracker
languages: [en]
about: a tracker of issues in repositories
entities:
  repo:
    noun: repository
    id: r##
    rows: 30
    tools: [get]
    fields: {name: {type: name, label: name, list: company}, stars: {type: integer, label: number of stars, min: 1, max: 900}}
  issue:
    noun: issue
    id: i###
    rows: 300
    fields:
      repo: {type: ref, to: repo}
      title: {type: name, label: title, open: true, list: street, filter: none}
      state: {type: choice, label: state, values: {open: open, closed: closed}, weights: {open: 3}}
      votes: {type: integer, label: number of votes, min: 0, max: 300, filter: none}
  member:
    noun: member
    id: m##
    rows: 30
    fields: {name: {type: name, label: name, list: person}}
actions:
  read_issue:
    verb: look up
    takes: {issue: issue, repo: {type: ref, to: repo, phrase: of repository _}}
    needs: [{if: issue.repo == repo, else: the repository has no such issue}]
    shows: {title: issue.title, votes: issue.votes, others: "count(issue, repo=repo)"}
  repo_issues:
    verb: look at the issues of _
    takes: {repo: repo, state: {type: choice, like: issue.state, label: state, optional: true, phrase: that are _}}
    finds: {issue: {repo: repo, state: state}}
  issue_by_title:
    verb: find the issue
    takes: {title: {type: name, like: issue.title, label: title, phrase: called _}}
    finds: {issue: {title: title}}
  close_issue:
    verb: close
    on: issue
    needs: [{if: issue.state == open, else: the issue is closed already}]
    rules:
      few_votes: {if: issue.votes < 100, words: An issue with 100 votes or more cannot be closed.}
      popular: {if: issue.repo.stars < 700, words: Issues of a repository with 700 stars or more cannot be closed.}
    sets: {issue.state: closed}
""")


def test_they_show_find_and_change_nothing() -> None:
    world = compile_spec(SPEC)(seed=2)
    tools = {tool.name: tool for tool in world.tools}
    assert not tools["read_issue"].changes_state and tools["close_issue"].changes_state
    assert tools["repo_issues"].parameters["required"] == ["repo"]
    issue = json.loads(world.call("get_issue", {"issue": "i007"}).content)
    shown = json.loads(world.call("read_issue", {"issue": "i007", "repo": issue["repo"]}).content)
    every = json.loads(world.call("repo_issues", {"repo": issue["repo"]}).content)
    closed = json.loads(world.call("repo_issues", {"repo": issue["repo"], "state": "closed"}).content)
    assert shown == {"title": issue["title"], "votes": issue["votes"], "others": every["issues_found"]}
    assert closed["issues_found"] <= every["issues_found"] and all(row["repo"] == issue["repo"] for row in every["rows"])
    other = "r00" if issue["repo"] != "r00" else "r01"
    assert world.call("read_issue", {"issue": "i007", "repo": other}).content == '{"error":"the repository has no such issue"}'
    assert not world.changes()


def test_every_task_is_admitted() -> None:
    assessment = assess(compile_spec(SPEC), 200, seed=0)
    assert assessment.share == 1.0
    assert {"read_issue", "repo_issues", "issue_by_title"} <= assessment.admitted.keys()


def test_one_row_is_asked_for_a_field_and_many_for_their_number() -> None:
    """Three rows or fewer are guessed too often to be counted, and of several rows no field is single."""
    world = compile_spec(SPEC)
    intent, live = world.intents["repo_issues"], world(seed=5)
    for number in range(30):
        slots = live.draw_slots("repo_issues", frozenset({"repo", "state", "aspect"}), random.Random(number))
        solution = intent.solve(live, slots, "en")
        found = json.loads(live.call("repo_issues", {"repo": slots["repo"], "state": slots["state"]}).content)
        assert found["issues_found"] == 1 if slots["aspect"] in ("title", "votes") else found["issues_found"] > 3
        assert len(solution.plan.calls) == 1 and not solution.success.changes


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        ({"verb": "x", "takes": {"issue": "issue"}, "shows": {"a": "issue.title"}, "sets": {"issue.votes": "1"}}, "sets: does not go with"),
        ({"verb": "x", "takes": {"issue": "issue"}, "shows": {"a": "issue.state == open"}}, "neither a field along references"),
        ({"verb": "x", "finds": {"isue": {}}}, "no entity 'isue'; did you mean 'issue'"),
        ({"verb": "x", "finds": {"issue": {"colour": "1"}}}, "no field 'colour' of issue"),
        (
            {"verb": "x", "takes": {"repo": {"type": "ref", "to": "repo", "optional": "true"}}, "shows": {"a": "repo.name"}},
            "may be left out",
        ),
        ({"verb": "x", "takes": {"repo": {"type": "ref", "to": "repo", "optional": "true"}}, "creates": {}}, "is for tools that only read"),
        ({"verb": "x", "takes": {"issue": "issue"}}, "changes nothing; give `sets`"),
    ],
)
def test_what_does_not_go_with_them_is_named(action: Any, problem: str) -> None:
    spec = copy.deepcopy(SPEC)
    spec["actions"]["wrong"] = action
    with pytest.raises(SpecError) as refused:
        compile_spec(spec)
    assert problem in "\n".join(map(str, refused.value.problems))


def test_a_new_row_may_refer_to_a_row_that_every_world_has() -> None:
    spec = copy.deepcopy(SPEC)
    created = {"repo": "'r03'", "title": "'Untitled'", "state": "open", "votes": "0"}
    spec["actions"]["report"] = {"verb": "report an issue", "creates": {"issue": created}}
    world = compile_spec(spec)(seed=1)
    assert json.loads(world.call("report", {}).content)["rows"][0]["repo"] == "r03"
    created["repo"] = "'r999'"
    with pytest.raises(SpecError, match="a fresh world has no repo 'r999'"):
        compile_spec(spec)
