"""Fork here: a stored conversation replayed in its world up to a turn, and the next calls and answers typed by hand.

Everything that was typed stands in the address; each look at the page plays it all again, so nothing is kept and a shared address shows
the same on every copy of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from flows.viewer.call_form import LONGEST_STEP, Step, added_step, address, read_steps
from flows.viewer.pages.conversation_page import ALL_TURNS, find_replayed, numbered_calls, read_conversation
from flows.viewer.pages.worlds.world_page import call_form, played_step
from flows.viewer.rendering import MOST_ROWS, ROWS_A_PAGE, render
from flows.viewer.viewed_store import ViewedStore
from flows.viewer.viewed_worlds import (
    change_of_path,
    cut,
    state_changes,
    state_table,
    why_tool_not_called,
    within_time,
)
from storage.errors import BadInput
from storage.explanations.conversation_text import parse_messages
from storage.records import Message
from storage.report.sections import chat

if TYPE_CHECKING:
    from synth.rollouts.conversation_fork import ConversationFork

router = APIRouter()


def fork_url(id: str, turn: int) -> str:
    """The address at which a trajectory or rollout is taken up again after its first `turn` messages of the assistant (0: before any)."""
    return f"/fork/{quote(id)}?{urlencode({'turn': turn})}"


@router.get("/fork/{id}")
def fork(
    request: Request,
    id: str,
    turn: Annotated[int, Query(ge=0, le=ALL_TURNS)] = 0,
    tool: str = "",
    rows: str = "",
    first: Annotated[int, Query(ge=0, le=MOST_ROWS)] = 0,
    call: Annotated[list[str] | None, Query()] = None,
) -> Response:
    """turn: messages of the assistant that are replayed. tool: whose form is shown. rows, first: the part of the state that is shown.
    call: what is done then (`Step.line`)."""
    from synth.rollouts.conversation_fork import ConversationFork

    viewed: ViewedStore = request.app.state.viewed
    _, row = read_conversation(viewed.store, id)
    recorded = parse_messages(row["messages"])
    origin, kind = find_replayed(viewed.store, row)
    steps, last = read_steps(call or []), sum(message.role == "assistant" for message in recorded)
    turn = min(turn, last)

    def work(check_time: Callable[[], None]) -> dict[str, Any]:
        with closing(ConversationFork(kind, origin, recorded, turn, check_time)) as forked:
            if (added := added_step(request, forked.tools)) is not None:
                return {"moved_to": address(request, [*steps, added]) + "#form"}
            return _shown(forked, request, steps, rows, first) | {
                "form": call_form(request, forked.tools, tool or next((step.tool for step in reversed(steps) if step.tool), ""), steps)
            }

    shown = within_time(work)
    if "moved_to" in shown:
        return RedirectResponse(shown["moved_to"], 303)
    shown["state"] |= {"earlier": _rows_at(request, steps, first - ROWS_A_PAGE) if first else None}
    shown["recorded_next"] = None if steps else _recorded_next(request, recorded, turn)
    return _page(request, shown, id=row["id"], world=origin.world, seed=origin.world_seed, turn=turn, last=last)


def _page(request: Request, shown: dict[str, Any], **facts: Any) -> HTMLResponse:
    id, turn = facts["id"], facts["turn"]
    return render(
        request,
        "fork.html.j2",
        **shown,
        **facts,
        before=fork_url(id, turn - 1) if turn else None,
        after=fork_url(id, turn + 1) if turn < facts["last"] else None,
        again=fork_url(id, turn),
    )


def _shown(forked: ConversationFork, request: Request, steps: Sequence[Step], rows: str, first: int) -> dict[str, Any]:
    """What the template needs: the replay, what was done by hand, the state and the criteria of success after it."""
    prefix, unequal = list(forked.messages), [one for one in forked.replayed if not one.is_equal]
    played = _play(forked, request, steps)
    state = forked.state()
    chosen = rows if rows in state else ""
    table = state_table(state, chosen, first, ROWS_A_PAGE) if chosen else None
    return {
        "messages": numbered_calls(chat([message.to_openai() for message in prefix])),
        "status": _statuses(forked),
        "replayed": forked.replayed,
        "differs": None if not unequal else _difference(forked),
        "played": played,
        "state": {
            "parts": [
                (part, len(held) if isinstance(held, dict | list) else 1, _rows_at(request, steps, 0, part)) for part, held in state.items()
            ],
            "table": table,
            "first": first,
            "later": _rows_at(request, steps, first + ROWS_A_PAGE) if table is not None and first + ROWS_A_PAGE < table.count else None,
        },
        "paths": change_of_path(forked.changes(), forked.expected_changes()),
        "criteria": _criteria(forked),
        "is_over": forked.is_over,
    }


def _recorded_next(request: Request, recorded: Sequence[Message], turn: int) -> dict[str, Any] | None:
    """What the assistant did next in the record, as lines, and the address where the same is done; without one where a line is too long."""
    spoken = [message for message in recorded if message.role == "assistant"]
    if turn >= len(spoken):
        return None
    message = spoken[turn]
    calls = [Step(call.function.name, call.function.arguments) for call in message.tool_calls]
    steps = calls or [Step("", message.content or "")]
    can_be_done = all(len(step.line) <= LONGEST_STEP and step.line.strip('" ') for step in steps)
    return {"lines": [step.line for step in steps], "url": address(request, steps) + "#form" if can_be_done else None}


def _play(forked: ConversationFork, request: Request, steps: Sequence[Step]) -> list[dict[str, Any]]:
    refused = {tool.name: why for tool in forked.tools if (why := why_tool_not_called(tool))}
    played = []
    for at, step in enumerate(steps):
        if forked.is_over:
            raise BadInput("the conversation is over after the answer; take back what was done after it")
        before = forked.state()
        if step.tool in refused:
            raise BadInput(refused[step.tool])
        if step.tool:
            one = played_step(step, forked.call(step.tool, step.text), state_changes(before, forked.state()))
        else:
            one = {"line": step.line, "tool": "", "said": step.text, "heard": forked.answer(step.text)}
        played.append(one | {"without": address(request, steps[:at])})
    return played


def _rows_at(request: Request, steps: Sequence[Step], first: int, part: str | None = None) -> str:
    named = {} if part is None else {"rows": part}
    return address(request, steps, first=max(0, first) or None, **named) + "#state"


def _statuses(forked: ConversationFork) -> dict[int, str]:
    """Number of a call -> what is to be said of its result."""
    return {
        at: "not run again: the recorded result" if not one.is_rerun else "another result than recorded"
        for at, one in enumerate(forked.replayed)
        if not one.is_equal or not one.is_rerun
    }


def _difference(forked: ConversationFork) -> dict[str, Any]:
    """The first call whose result is not the recorded one."""
    number, one = next((at, one) for at, one in enumerate(forked.replayed) if not one.is_equal)
    recorded = "no result" if one.recorded is None else cut(one.recorded)
    return {"number": number, "tool": one.call.function.name, "recorded": recorded, "result": cut(one.result)}


def _criteria(forked: ConversationFork) -> list[dict[str, Any]]:
    """Each criterion with whether it holds; None where only an answer can tell, and none was given."""
    from synth.conversations.failed_checks import DEMANDS
    from synth.rollouts.conversation_fork import OF_THE_ANSWER

    last = forked.messages[-1] if forked.messages else None
    is_answered = forked.is_over or (last is not None and last.role == "assistant" and not last.tool_calls)
    rows = []
    for name, holds in forked.checks().items():
        check = name.rpartition(".")[2]
        rows.append({"name": name, "holds": holds if is_answered or check not in OF_THE_ANSWER else None, "demand": DEMANDS.get(check, "")})
    return rows
