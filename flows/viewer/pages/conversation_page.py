"""One conversation, of a trajectory or a rollout: the talk beside its plan, its checks with their evidence, and its tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import polars as pl
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from flows.viewer.by_hand.hand_form import hand_form
from flows.viewer.conversation_tokens import conversation_tokens
from flows.viewer.rendering import render
from flows.viewer.viewed_store import ViewedStore
from flows.viewer.viewed_worlds import find_world, state_changes, why_not_called, within_time
from storage.errors import BadInput
from storage.explanations.conversation_text import match_plan, parse_messages
from storage.explanations.explain_conversation import list_names, planned_calls, rollout_facts, trajectory_facts
from storage.records import CODE_TOOL, Task
from storage.releases.node_ids import find_node
from storage.report.sections import chat
from storage.store import Store

if TYPE_CHECKING:
    from synth.blueprints.blueprint import Blueprint
    from synth.worlds.base import World

ALL_TURNS = 10_000

_TABLES = {
    "trajectory": ("trajectories", "trajectory_id", "", trajectory_facts),
    "rollout": ("rollouts", "rollout_id", "EXCLUDE (turns)", rollout_facts),
}
"""Kind -> table, key, columns that are left out, and what is said of a row."""

router = APIRouter()


@router.get("/trajectories/{id}")
def show_conversation(request: Request, id: str) -> HTMLResponse:
    store = _store(request)
    kind, row = read_conversation(store, id)
    messages = parse_messages(row["messages"])
    plan = match_plan(planned_calls(store, row), messages)
    return render(
        request,
        "conversation.html.j2",
        item={"id": row["id"], "kind": kind, "facts": [(label, text) for label, text in _TABLES[kind][3](store, row) if text]},
        messages=numbered_calls(chat(json.loads(row["messages"]))),
        plan=plan,
        status={one.made: one.what_happened for one in plan if one.made is not None},
        checks=_named_checks(store, row),
        by_hand=hand_form(request, row["id"]),
    )


@router.get("/trajectories/{id}/tokens")
def show_tokens(request: Request, id: str, policy: str = "") -> HTMLResponse:
    """The tokens of a conversation. policy: as of `conversation_tokens`."""
    store = _store(request)
    kind, row = read_conversation(store, id)
    return render(request, "tokens.html.j2", id=row["id"], kind=kind, shown=conversation_tokens(store, kind, row, policy))


@router.get("/trajectories/{id}/checks")
def show_checks(request: Request, id: str) -> HTMLResponse:
    """The checks of a conversation, the failed ones with what was expected and found, by a replay."""
    store = _store(request)
    _, row = read_conversation(store, id)
    return render(request, "checks.html.j2", id=row["id"], checks=_checks(store, row))


@router.get("/trajectories/{id}/changes")
def show_changes(request: Request, id: str) -> HTMLResponse:
    """What each call changed in the world, by a replay."""
    from synth.rollouts.conversation_fork import ConversationFork

    store = _store(request)
    _, row = read_conversation(store, id)
    origin, kind = find_replayed(store, row)

    def work(check_time: Callable[[], None]) -> list[dict[str, Any]]:
        with closing(ConversationFork(kind, origin, parse_messages(row["messages"]), ALL_TURNS, check_time, keeps_states=True)) as fork:
            return [
                {"name": one.call.function.name, "changes": state_changes(one.before or {}, one.after or {}), "is_equal": one.is_equal}
                for one in fork.replayed
            ]

    return render(request, "changes.html.j2", id=row["id"], calls=within_time(work))


def find_replayed(store: Store, row: Mapping[str, Any]) -> tuple[Task | Blueprint, type[World]]:
    """What a conversation was played for, and its world.

    Raises:
        BadInput: it cannot be replayed; the message says why.
    """
    from synth.conversations.failed_checks import find_origin

    origin = find_origin(store, row)
    if origin is None:
        raise BadInput(f"{row['id']} cannot be replayed: neither its task nor the blueprint that planned it is in the store")
    kind = find_world(store, origin.world)
    if (why := why_not_called(kind)) is not None:
        raise BadInput(f"{row['id']} is not replayed. {why}")
    return origin, kind


def read_conversation(store: Store, id: str) -> tuple[str, dict[str, Any]]:
    """Kind, and the row of `trajectories` or `rollouts` with its id as `id`.

    Raises:
        BadInput: the store has no such conversation.
    """
    kind, node = id.partition("-")[0], id
    rows = _rows(store, kind, id) if kind in _TABLES else pl.DataFrame()
    if rows.is_empty():
        kind, node = find_node(store, id)
        if kind not in _TABLES:
            raise BadInput(f"{node} is a {kind}, and no conversation")
        rows = _rows(store, kind, node)
    return kind, rows.row(0, named=True) | {"id": node}


def _rows(store: Store, kind: str, id: str) -> pl.DataFrame:
    table, key, left_out, _ = _TABLES[kind]
    return store.query(f"SELECT * {left_out} FROM {table} WHERE {key} = ? LIMIT 1", [id])


def numbered_calls(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages of a chat, each call with its `number` in the conversation, and each message of the assistant with its `turn`, the
    number of those before it, both from 0."""
    number, turn, shown = 0, 0, []
    for message in messages:
        calls = [{**call, "number": number + place} for place, call in enumerate(message["calls"])]
        number += len(calls)
        shown.append({**message, "calls": calls, "turn": turn if message["role"] == "assistant" else None})
        turn += message["role"] == "assistant"
    return shown


def _named_checks(store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    """The checks that failed and those that held, with what they demand; `why`: empty."""
    from synth.conversations.failed_checks import DEMANDS

    checks: dict[str, bool] = json.loads(row["checks"] or "{}")
    held = [(name, DEMANDS.get(name.rpartition(".")[2], "")) for name, is_good in checks.items() if is_good]
    failed = [] if all(checks.values()) else list_names(store, row)
    return {"failed": failed, "held": held, "why": ""}


def _checks(store: Store, row: Mapping[str, Any]) -> dict[str, Any]:
    """As `_named_checks`, with what was expected and found, or in `why` why there is no replay."""
    from synth.conversations.failed_checks import failed_checks

    named = _named_checks(store, row)
    if not named["failed"]:
        return named
    try:
        find_replayed(store, row)
        if any(call.function.name == CODE_TOOL for message in parse_messages(row["messages"]) for call in message.tool_calls):
            raise BadInput("It ran programs, and the viewer runs none.")
        return named | {"failed": within_time(lambda _: list(failed_checks(store, row)))}
    except BadInput as refusal:
        return named | {"why": str(refusal)}


def _store(request: Request) -> Store:
    viewed: ViewedStore = request.app.state.viewed
    return viewed.store
