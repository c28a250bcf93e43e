"""Worlds: all that this Headrace knows or the store used, and of one its tools, their graph, its rules, the rows of a drawn state, and
calls by a form. Calls change a copy in memory that only the page's own address describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from flows.viewer.call_form import Step, added_step, address, form_fields, read_steps
from flows.viewer.rendering import MOST_ROWS, ROWS_A_PAGE, page_links, render
from flows.viewer.tool_graph_drawing import Drawing, draw_tools
from flows.viewer.viewed_store import ViewedStore
from flows.viewer.viewed_worlds import (
    StateChange,
    cut,
    find_world,
    state_changes,
    state_table,
    stored_tools,
    why_not_called,
    why_tool_not_called,
    within_time,
)
from storage.errors import BadInput
from storage.records import Tool, is_error
from storage.store import Store

if TYPE_CHECKING:
    from synth.worlds.base import World

_COUNTS = """SELECT * FROM (SELECT world, sum(tasks)::BIGINT AS tasks, sum(trajectories)::BIGINT AS trajectories,
  sum(requests)::BIGINT AS requests, sum(clusters)::BIGINT AS clusters, sum(tools)::BIGINT AS tools FROM (
    SELECT world, count(*) AS tasks, 0 AS trajectories, 0 AS requests, 0 AS clusters, 0 AS tools FROM tasks GROUP BY 1
    UNION ALL SELECT world, 0, count(*), 0, 0, 0 FROM trajectories GROUP BY 1
    UNION ALL SELECT world, 0, 0, count(*), 0, 0 FROM frames GROUP BY 1
    UNION ALL SELECT world, 0, 0, 0, count(*), 0 FROM clusters GROUP BY 1
    UNION ALL SELECT world, 0, 0, 0, 0, count(DISTINCT name) FROM tools GROUP BY 1
    UNION ALL SELECT world, 0, 0, 0, 0, 0 FROM worlds) GROUP BY 1)
  WHERE world IS NOT NULL {where} ORDER BY tasks + trajectories DESC, requests DESC, world"""
"""SQL: what a store has of each world, those with most tasks and trajectories first."""

Seed = Annotated[int, Query(ge=0, le=2**31 - 1)]

router = APIRouter()


@router.get("/worlds")
def list_worlds(request: Request) -> HTMLResponse:
    """The worlds that the store used, then the others that are registered."""
    from synth.worlds import WORLDS

    viewed: ViewedStore = request.app.state.viewed
    used = viewed.store.query(_COUNTS.format(where="")).to_dicts()
    names = {row["world"] for row in used}
    own = set(viewed.store.query("SELECT world FROM worlds")["world"])
    rows = [row | {"kind": _kind_in_words(row["world"], own)} for row in used]
    others = [name for name in WORLDS.names() if name not in names]
    return render(request, "worlds.html.j2", rows=rows, others=others)


def _kind_in_words(name: str, own: set[str]) -> str:
    from synth.worlds import WORLDS

    if name in own:
        return "your own, kept in this store"
    if name not in WORLDS:
        return "not known here"
    return "generated" if name.startswith("gen-") else "comes with Headrace"


@router.get("/worlds/{name}")
def show_world(request: Request, name: str, tool: str = "") -> HTMLResponse:
    """tool: the one whose edges stand out in the drawing."""
    viewed: ViewedStore = request.app.state.viewed
    kind, why = _known_or_why(viewed.store, name)
    tools = list(kind.tools) if kind is not None else stored_tools(viewed.store, name)
    counts = next(iter(viewed.store.query(_COUNTS.format(where="AND world = ?"), [name]).to_dicts()), None)
    if kind is None and not tools and counts is None:
        raise BadInput(why or "")
    clusters = viewed.store.query(
        "SELECT cluster_id, domain, len(tool_ids) AS tools, rank FROM clusters WHERE world = ? ORDER BY rank, cluster_id LIMIT ?",
        [name, ROWS_A_PAGE],
    ).to_dicts()
    return render(
        request,
        "world.html.j2",
        **_headed(name, "tools", kind, why),
        tools=[_described(each) for each in tools],
        drawing=_drawing(name, tools),
        chosen_tool=next((each.id for each in tools if each.name == tool), ""),
        counts=counts,
        clusters=clusters,
        about=_about(kind) if kind is not None else {},
    )


@router.get("/worlds/{name}/rows")
def show_rows(
    request: Request, name: str, seed: Seed = 0, rows: str = "", first: Annotated[int, Query(ge=0, le=MOST_ROWS)] = 0
) -> HTMLResponse:
    """The rows of a fresh state. rows: the part of it that is shown; its first one by default."""
    viewed: ViewedStore = request.app.state.viewed
    kind, why = _known_or_why(viewed.store, name)
    if kind is None or why:
        raise BadInput(why or "")
    state = within_time(lambda _: kind(seed).state())
    chosen = rows or next(iter(state), "")
    table = state_table(state, chosen, first, ROWS_A_PAGE) if state else None
    return render(
        request,
        "world_rows.html.j2",
        **_headed(name, "rows", kind, why),
        seed=seed,
        parts=_parts(state),
        table=table,
        first=first,
        **page_links(request, first, has_more=table is not None and first + ROWS_A_PAGE < table.count),
    )


@router.get("/worlds/{name}/call")
def call_tools(request: Request, name: str, seed: Seed = 0, tool: str = "", call: Annotated[list[str] | None, Query()] = None) -> Response:
    """Calls one after the other in a fresh world of the seed. tool: whose form is shown. call: the calls (`Step.line`)."""
    viewed: ViewedStore = request.app.state.viewed
    kind, why = _known_or_why(viewed.store, name)
    if kind is None or why:
        raise BadInput(why or "")
    steps = read_steps(call or [])
    if (added := added_step(request, kind.tools)) is not None:
        return RedirectResponse(address(request, [*steps, added]) + "#form", 303)
    played = _play(kind, seed, steps)
    return render(
        request,
        "world_call.html.j2",
        **_headed(name, "call", kind, why),
        seed=seed,
        played=[{**one, "without": address(request, steps[:at])} for at, one in enumerate(played)],
        form=call_form(request, kind.tools, tool or (steps[-1].tool if steps else ""), steps),
    )


def call_form(request: Request, tools: Sequence[Tool], chosen: str, steps: Sequence[Step]) -> dict[str, Any]:
    """What the template needs for the form of a call. chosen: name of the tool; any other text is the first tool."""
    tool = next((tool for tool in tools if tool.name == chosen), tools[0]) if tools else None
    return {
        "action": request.url.path,
        "tools": [each.name for each in tools],
        "tool": tool,
        "fields": form_fields(tool) if tool is not None else [],
        "refused": why_tool_not_called(tool) if tool is not None else None,
        "lines": [step.line for step in steps],
        "kept": [pair for pair in request.query_params.multi_items() if pair[0] in ("seed", "turn", "rows")],
    }


def played_step(step: Step, result: str, changes: Sequence[StateChange]) -> dict[str, Any]:
    """A call with its result as the template shows it."""
    return {"line": step.line, "tool": step.tool, "result": cut(result), "failed": is_error(result), "changes": changes}


def _play(kind: type[World], seed: int, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """The steps with what each gave."""
    refused = {tool.name: why for tool in kind.tools if (why := why_tool_not_called(tool))}

    def work(check_time: Any) -> list[dict[str, Any]]:
        world, played = kind(seed), list[dict[str, Any]]()
        before = world.state()
        for step in steps:
            check_time()
            if not step.tool or step.tool in refused:
                raise BadInput(refused.get(step.tool) or f"a call is a tool and its arguments, and this is none: {step.line[:80]}")
            result, after = world.call(step.tool, step.text).content, world.state()
            played.append(played_step(step, result, state_changes(before, after)))
            before = after
        return played

    return within_time(work)


# ---- parts of the pages -----------------------------------------------------------------------------------------------


def _known_or_why(store: Store, name: str) -> tuple[type[World] | None, str | None]:
    """The world, if it is known, and why it is not called, if it is not."""
    try:
        kind = find_world(store, name)
    except BadInput as unknown:
        return None, str(unknown)
    return kind, why_not_called(kind)


def _headed(name: str, part: str, kind: type[World] | None, why: str | None) -> dict[str, Any]:
    address = f"/worlds/{quote(name)}"
    views = [("tools", address, "Tools and rules"), ("rows", f"{address}/rows", "Rows"), ("call", f"{address}/call", "Call a tool")]
    return {"name": name, "part": part, "views": views if kind is not None and not why else [], "why": why, "base": address}


def _parts(state: Any) -> list[tuple[str, int]]:
    return [(part, len(rows) if isinstance(rows, (dict, list)) else 1) for part, rows in state.items()]


def _described(tool: Tool) -> dict[str, Any]:
    fields = form_fields(tool)
    signature = ", ".join(field.name if field.is_required else f"{field.name}?" for field in fields)
    return {"tool": tool, "fields": fields, "signature": f"{tool.name}({signature})", "refused": why_tool_not_called(tool)}


def _drawing(name: str, tools: Sequence[Tool]) -> Drawing:
    from synth.clusters.edges import ToolFeatures, find_edges

    edges = find_edges(ToolFeatures.of(tools)) if tools else []
    return draw_tools(tools, edges, {tool.id: f"/worlds/{quote(name)}?tool={quote(tool.name)}#graph" for tool in tools})


def _about(kind: type[World]) -> dict[str, Any]:
    """What a world says of itself, its rules with the tools that they hold for, and its intents."""
    from synth.worlds.declarative.compiled_world import SpecWorld

    rules, facts, about = list[tuple[str, str]](), list[str](), ""
    if issubclass(kind, SpecWorld):
        domain, language = kind.domain, kind.domain.languages[0]
        about = domain.spec.head.about[language]
        facts = [info.words[language] for info in domain.spec.info]
        for action, spec in domain.spec.actions.items():
            public = domain.public.get(action)
            rules += [(rule.words[language], public.tool if public else action) for rule in spec.rules.values()]
    intents = [
        {
            "name": intent.name,
            "calls": intent.shape(frozenset(slot.name for slot in intent.slots if slot.is_required)).tools,
            "refusal": intent.refusal,
        }
        for intent in kind.intents.values()
    ]
    return {"rules": rules, "facts": facts, "about": about, "prompt": kind.system_prompt, "intents": intents}
