"""A small store in which every table has rows that agree with each other, as a whole pipeline would leave it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.records import Call, FunctionCall, Message, Outcome, Plan, Rollout, SampledTurn, Success, Task, ToolCall, Trajectory
from storage.releases.release import ReleaseItem, make_release
from storage.store import Part, Store, part_id
from storage.tables import TABLES

RUN = "run-1"


def rows(table: str, *given: dict[str, Any]) -> pl.DataFrame:
    """Rows of a table; columns that are not given are null."""
    columns = TABLES[table].columns
    return pl.DataFrame([dict.fromkeys(columns) | row for row in given], schema=columns)


def write(store: Store, table: str, *given: dict[str, Any], n: int = 1) -> Part:
    return store.write(table, part_id(table, [], {"n": n}, 1), rows(table, *given))


def conversation(text: str, tool: str = "search_products") -> tuple[Message, ...]:
    return (
        Message(role="user", content=text),
        Message(
            role="assistant", tool_calls=(ToolCall(id="c1", function=FunctionCall(name=tool, arguments='{"category": "lamp", "max": 30}')),)
        ),
        Message(role="tool", tool_call_id="c1", content='{"rows": [{"id": "p7", "price": 25}]}'),
        Message(role="assistant", content="p7 costs 25."),
    )


def task(number: int, **changes: Any) -> Task:
    fields: dict[str, Any] = {
        "id": f"task-{number}",
        "world": "retail",
        "world_seed": number,
        "intent": "buy",
        "leaf": "commerce.purchase.buy_cheapest",
        "frame_id": "frame-lamp",
        "slots": {"category": "lamp"},
        "language": "en",
        "messages": (Message(role="user", content=f"Buy me lamp number {number}"),),
        "tools": ("search_products", "buy"),
        "plan": Plan(calls=(Call(tool="buy", arguments={"id": "p7"}),), answer="Done."),
        "success": Success(changes={"orders/o1": {"product": "p7"}}),
        "difficulty": 2,
        "division": "seed",
    }
    return Task(**(fields | changes))


def task_row(record: Task) -> dict[str, Any]:
    columns = ("query_id", "blueprint_id", "frame_id", "world", "world_seed", "intent", "leaf", "language", "division", "use", "difficulty")
    return {"task_id": record.id, "spec": record.model_dump_json(), **{name: getattr(record, name) for name in columns}}


def _messages(record: Trajectory) -> str:
    return json.dumps([message.to_openai() for message in record.messages], ensure_ascii=False)


def trajectory_row(record: Trajectory, about: Task) -> dict[str, Any]:
    return {
        "trajectory_id": record.id,
        "task_id": record.task_id,
        "blueprint_id": about.blueprint_id,
        "cluster_id": "cluster-shop" if about.blueprint_id else None,
        "query_id": about.query_id,
        "world": about.world,
        "world_seed": about.world_seed,
        "domain": "retail",
        "language": about.language,
        "teacher": record.teacher,
        "outcome": record.outcome.value,
        "reward": record.reward,
        "accepted": record.outcome is Outcome.SUCCESS,
        "mode_coarse": "C>F",
        "mode_fine": "C1>F",
        "complexity": 2.5,
        "complexity_band": "simple",
        "tools_used": ["search_products"],
        "messages": _messages(record),
        "checks": json.dumps(record.checks),
        "prompt_tokens": record.cost.prompt_tokens,
        "completion_tokens": record.cost.completion_tokens,
        "cost_usd": record.cost.usd,
    }


def rollout_row(record: Rollout, purpose: str) -> dict[str, Any]:
    return {
        "rollout_id": record.id,
        "task_id": record.task_id,
        "policy_id": record.policy_id,
        "purpose": purpose,
        "draw": record.draw,
        "outcome": record.outcome.value,
        "reward": record.reward,
        "checks": json.dumps(record.checks),
        "messages": _messages(record),
        "turns": json.dumps([turn.model_dump() for turn in record.turns]),
    }


QUERIES = ["buy me a lamp", "buy me a lamp", "asdf", "buy me a lamp please", "cheap lamp under 30", "find 灯"]
VERDICTS = [
    {"step": "admit", "kept": True},
    {"step": "exact", "kept": False, "reason": "duplicate", "duplicate_of": "q-0", "similarity": 1.0},
    {"step": "rules", "kept": False, "reason": "junk"},
    {"step": "near", "kept": False, "reason": "near duplicate", "duplicate_of": "q-0", "similarity": 0.83},
    {"step": "admit", "kept": True},
    {"step": "admit", "kept": False, "reason": "plan not minimal"},
]
FUNNEL = [("exact", 6, 5, "duplicate"), ("rules", 5, 4, "junk"), ("near", 4, 3, "near duplicate"), ("admit", 3, 2, "plan not minimal")]


def funnel_parts(store: Store, run: str = RUN, n: int = 1) -> list[Part]:
    """Queries, verdicts and funnel of one run that adds up."""
    return [
        write(
            store,
            "queries",
            *(
                {"query_id": f"q-{row}", "run": run, "source": "log.txt", "row": row, "text": text, "language": "en", "occurrences": 1}
                for row, text in enumerate(QUERIES)
            ),
            n=n,
        ),
        write(store, "verdicts", *({"query_id": f"q-{row}", "run": run} | verdict for row, verdict in enumerate(VERDICTS)), n=n),
        write(
            store,
            "funnel",
            *(
                {
                    "run": run,
                    "position": position,
                    "step": step,
                    "rows_in": before,
                    "kept": kept,
                    "dropped": before - kept,
                    "reasons": json.dumps({reason: before - kept}),
                    "seconds": 0.1,
                    "size_bytes": 100,
                }
                for position, (step, before, kept, reason) in enumerate(FUNNEL)
            ),
            n=n,
        ),
    ]


def fields_of(query: int) -> dict[str, Any]:
    """The columns that a kept query has in its file."""
    return {"text": QUERIES[query], "ticket": 100 + query, "tags": ["vip"], "paid": query > 0, "price": None}


def index_parts(store: Store) -> list[Part]:
    """What a run leaves for later ones: a segment of one row, and a taxonomy."""
    segment, files = {"segment": "segment-1", "recipe": "recipe-1", "position": 0}, '[["c0ffee", "log.txt", 1]]'
    keys = {"key_high": -5, "key_low": 7, "frame_high": 1, "frame_low": 2}
    return [
        write(store, "segments", segment | {"first_row": 0, "files": files, "parts": "{}"}),
        write(store, "seen", {"segment": "segment-1", "row": 0, "kind": 3, "keeper": 0, "norm": "a lamp"} | keys),
        write(store, "asked", {"segment": "segment-1", "row": 0, "combination": 7}),
        write(
            store,
            "answers",
            {"answer_id": "a1", "engine": "scripted", "request": "{}", "answer": "{}", "prompt_tokens": 3, "completion_tokens": 1},
        ),
        write(
            store,
            "provenance",
            {"trajectory_id": "trajectory-1", "roles": "{}", "prompts": "{}", "user_turns": 2, "user_adhered": 2},
        ),
        write(store, "bands", {"segment": "segment-1", "band": 0, "entry": 1 << 40}),
        write(
            store,
            "contaminated",
            {"run": RUN, "query_id": "q-5", "held_out": "exam", "held_out_row": 3, "found_by": "near", "similarity": 0.9},
        ),
        write(store, "query_fields", *({"run": RUN, "query_id": f"q-{row}", "fields": json.dumps(fields_of(row))} for row in (0, 4))),
        write(store, "nearness", {"run": RUN, "held_out": "exam", "found_by": "near", "bin_from": 0.9, "rows": 1}),
        write(store, "taxonomies", {"position": 0, "taxonomy_id": "taxonomy-1", "origin": "built in", "tree": "{}", "statistics": "{}"}),
    ]


@dataclass(frozen=True)
class Sample:
    """A full store, and the ids to look for in it."""

    store: Store
    first_release: str
    second_release: str


TASKS = (
    task(1, query_id="q-0"),
    task(2, blueprint_id="blueprint-good", frame_id="frame-desk"),
    task(3, query_id="q-4", division="probe", frame_id="frame-cheap", language="zh"),
    task(4, query_id="q-0", use="eval_in"),
)
EXPERTS = tuple(
    Trajectory(
        id=f"trajectory-{about.id}",
        task_id=about.id,
        messages=conversation(f"Buy me lamp <b>{about.id}</b>"),
        outcome=Outcome.SUCCESS,
        reward=1.0,
        checks={"state": True},
        teacher="scripted",
    )
    for about in TASKS[:2]
)
ROLLOUTS = tuple(
    Rollout(
        id=f"rollout-{draw}",
        task_id="task-3",
        messages=conversation("cheap lamp"),
        outcome=Outcome.SUCCESS if draw < 6 else Outcome.POLICY_FAILURE,
        reward=1.0 if draw < 6 else 0.0,
        checks={"state": draw < 6},
        policy_id="policy-1",
        draw=draw,
        turns=(SampledTurn(token_ids=(1, 2), logprobs=(-0.5, -0.25), policy_version="policy-1"),),
    )
    for draw in range(8)
)


def _synthesis(store: Store) -> list[Part]:
    tool = {"server": "shop", "domain": "retail", "world": "retail", "parameters": "{}", "changes_state": False}
    blueprint = {
        "cluster_id": "cluster-shop",
        "world": "retail",
        "world_seed": 5,
        "domain": "retail",
        "mode_family": "sequential",
        "round": 0,
    }
    return [
        write(
            store,
            "tools",
            tool | {"tool_id": "shop.search_products", "name": "search_products", "description": "Finds products"},
            tool | {"tool_id": "shop.buy", "name": "buy", "description": "Buys one", "changes_state": True},
            tool | {"tool_id": "shop.unused", "name": "unused", "description": "Nobody calls it"},
        ),
        write(
            store,
            "clusters",
            {
                "cluster_id": "cluster-shop",
                "domain": "retail",
                "world": "retail",
                "tool_ids": ["shop.search_products", "shop.buy"],
                "edges": '[["shop.search_products", "shop.buy"]]',
                "rank": 0,
            },
        ),
        write(
            store,
            "blueprints",
            blueprint | {"blueprint_id": "blueprint-good", "complexity_band": "simple", "status": "accepted", "spec": "{}"},
            blueprint
            | {"blueprint_id": "blueprint-bad", "complexity_band": "hard", "status": "rejected", "reason": "no plan", "spec": "{}"},
        ),
        write(
            store,
            "configurations",
            {"position": 1, "flow": "curate", "worlds": [], "languages": ["en", "zh"], "section": "{}"},
        ),
        write(store, "worlds", {"world": "bakery@1a2b3c4d", "domain": "bakery", "spec": "{}"}),
        write(store, "decisions", *(decision(position) for position in range(3))),
        write(store, "focus", {"focus_id": "focus-1", "task_id": "task-3", "k": 8, "successes": 6, "urgency": 0.83}),
        write(
            store,
            "diversity",
            *(
                {"run": "run-synthesis", "round": n, "metric": metric, "value": 1.0 + n / 4, "sd": 0.05, "n": 50}
                for n in range(3)
                for metric in ("domain_entropy_bits", "mode_entropy_coarse_bits", "tool_coverage")
            ),
        ),
        write(store, "trajectories", *(trajectory_row(record, about) for record, about in zip(EXPERTS, TASKS, strict=False))),
    ]


def decision(position: int) -> dict[str, object]:
    """Of three proposals, one comes out as asked, one in another cell, and one is rejected."""
    asked = {"domain": "retail", "mode_family": "C>F", "complexity_band": "low"}
    got = {f"got_{axis}": value for axis, value in asked.items()} if position < 2 else {}
    return {
        "run": "run-synthesis",
        "round": 0,
        "position": position,
        "blueprint_id": ("blueprint-good", "blueprint-other", "blueprint-bad")[position],
        "cluster_id": "cluster-shop",
        **asked,
        "domain_bits": 0.25,
        "family_bits": 3.7,
        "band_deficit": 0.5,
        "feasibility": 0.566,
        "measured_on": "mode",
        "probability": 0.0125,
        "operators": ["inject_fault", "distractors"] if position == 0 else [],
        "status": "rejected" if position == 2 else "accepted",
        "reason": "goal_0.facts" if position == 2 else None,
        **(got | {"got_mode_family": "A>P"} if position == 1 else got),
    }


def _stage(store: Store, number: int, release: str, split: str, parent: str | None) -> list[Part]:
    policy = f"policy-{number}"
    return [
        write(
            store,
            "stages",
            {
                "stage_id": f"stage-{number}",
                "name": f"sft{number}",
                "algorithm": "sft",
                "backend": "local",
                "release_id": release,
                "split": split,
                "input_policy_id": parent,
                "output_policy_id": policy,
                "spec": "{}",
                "code_hash": "c0de",
                "metrics": "{}",
                "seconds": 1.0,
            },
            n=number,
        ),
        write(
            store,
            "policies",
            {"policy_id": policy, "stage_id": f"stage-{number}", "path": f"models/{number}", "weights_hash": "ab" * 16},
            n=number,
        ),
        write(
            store,
            "evaluations",
            {
                "evaluation_id": f"evaluation-{number}",
                "policy_id": policy,
                "use": "eval_in",
                "decoding": "sampled",
                "facet": "all",
                "facet_value": "all",
                "tasks": 1,
                "samples": 4,
                "rate": 0.25 * number,
                "low": 0.2 * number,
                "high": 0.3 * number,
                "pass_k": '{"2": 0.1}',
            },
            n=number,
        ),
        write(
            store, "promotions", {"policy_id": policy, "position": number, "passed": True, "checks": '{"no_forgetting": true}'}, n=number
        ),
    ]


def build_sample(root: Path) -> Sample:
    store = Store(root)
    frame = {"run": RUN, "world": "retail", "intent": "buy", "leaf": TASKS[0].leaf, "combination": "retail/buy(category)"}
    rated = {"shape": "search[]>buy[0]", "quality": 0.9, "difficulty": 2, "s_tool": 1, "s_chain": 2, "s_constraints": 2, "stratum_rank": 0}
    store.commit(
        [
            *funnel_parts(store),
            *index_parts(store),
            write(
                store,
                "frames",
                frame | rated | {"query_id": "q-0", "frame_id": "frame-lamp", "slots": '{"category":"lamp"}', "status": "admitted"},
                frame | rated | {"query_id": "q-4", "frame_id": "frame-cheap", "slots": '{"max":30}', "status": "admitted"},
            ),
            *_synthesis(store),
            write(store, "tasks", *map(task_row, TASKS)),
            write(
                store,
                "by_hand",
                {
                    "annotation_id": "annotation-1",
                    "item_id": "q-0",
                    "author": "ada",
                    "verdict": "keep",
                    "annotated_at": "2026-11-01T09:00:00",
                },
            ),
        ]
    )
    first = make_release(
        store, "seed", {"seed": [ReleaseItem("trajectory", e.id, e.task_id) for e in EXPERTS]}, {"expert_budget": len(EXPERTS)}
    )
    store.commit(
        [
            *_stage(store, 1, first, "seed", None),
            write(store, "rollouts", *(rollout_row(record, "probe") for record in ROLLOUTS)),
            write(
                store,
                "tags",
                {
                    "task_id": "task-3",
                    "policy_id": "policy-1",
                    "purpose": "probe",
                    "difficulty": 2,
                    "k": 8,
                    "successes": 6,
                    "rate": 0.75,
                    "wilson_low": 0.41,
                    "wilson_high": 0.93,
                    "reward_mean": 0.75,
                    "reward_variance": 0.19,
                    "learnability": 0.19,
                    "region": "certain",
                    "need": '["retail","buy",{}]',
                    "difficulty_prior": 0.4,
                    "prior_basis": "intent",
                    "prior_draws": 16,
                },
            ),
        ]
    )
    second = make_release(
        store,
        "second",
        {
            "sft2": [ReleaseItem("trajectory", EXPERTS[0].id, "task-1"), ReleaseItem("rollout", "rollout-0", "task-3")],
            "rl": [ReleaseItem("task", "task-3", "task-3", 0.5)],
        },
        {"probed_policy": "policy-1"},
    )
    store.commit(_stage(store, 2, second, "sft2", "policy-1"))
    return Sample(store, first, second)


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """Read-only: tests that write build their own."""
    return build_sample(tmp_path_factory.mktemp("sample") / "store")


@pytest.fixture
def build() -> Callable[[Path], Sample]:
    return build_sample
