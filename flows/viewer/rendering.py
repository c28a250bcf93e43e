"""How pages are written: the template engine with its filters, and ids that lead to their pages. Every text of a store is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup, escape

from flows.viewer.viewed_store import ViewedStore
from storage.conversation import mode_in_words
from storage.explanations.funnel_reasons import reason_in_words
from storage.explanations.store_rows import purpose_in_words
from storage.releases.lineage_graph import ORDER

PAGES = (
    ("/", "Overview"),
    ("/requests", "Requests"),
    ("/trajectories", "Trajectories"),
    ("/tasks", "Tasks"),
    ("/lineage", "Lineage"),
    ("/worlds", "Worlds"),
    ("/clusters", "Clusters"),
    ("/map", "Map"),
    ("/compare", "Compare"),
    ("/by-hand", "By hand"),
)
ROWS_A_PAGE = 50
MOST_SHOWN = 20_000
"""Characters of one text that a page shows."""
MOST_ROWS = 10**9
FIRST_BUILD_WAIT_S = 0.3
"""For the first index, before a page says that it is being made."""
_PAGE_OF_KIND = {"q": "/requests", "trajectory": "/trajectories", "rollout": "/trajectories", "task": "/tasks", "cluster": "/clusters"}
"""Kinds of ids that have a page of their own; the others share one."""
_ID = re.compile(
    r"\b(?:q-[0-9a-f]{8}-\d{8,}"
    r"|(?:funnel|frame|task|trajectory|rollout|blueprint|cluster|stage|policy|release|evaluation|withdrawal)-[0-9a-f]{16}(?:/\w+)?)\b"
)


def make_templates(viewed: ViewedStore) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "count": lambda value: "" if value is None else f"{value:,}",
        "mode": lambda signature: mode_in_words(signature or ""),
        "rate": lambda value: "" if value is None else f"{value:.3f}",
        "reason": lambda reason: reason_in_words(reason or ""),
        "words": lambda name: (name or "").replace("_", " "),
        "links": link_ids,
        "mark": mark,
        "begin": _begin,
        "purpose": purpose_in_words,
        "check": _check_in_words,
        "facet": _facet_in_words,
        "inert": lambda json_text: Markup(json_text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")),
        "item_url": item_url,
    }
    environment.globals |= {
        "most_shown": MOST_SHOWN,
        "pages": PAGES,
        "lineage_kinds": ORDER,
        "store_name": viewed.name,
        "store_root": str(viewed.root),
    }
    return environment


def _begin(text: str) -> str:
    """As much of a text as a page bears."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}\n… {len(text) - MOST_SHOWN:,} more characters"


def _facet_in_words(value: str, column: str) -> str:
    if column == "reason":
        return reason_in_words(value)
    if column == "purpose":
        return purpose_in_words(value)
    return mode_in_words(value) if column == "mode" else value.replace("_", " ")


def _check_in_words(name: str) -> str:
    """`turn_1.goal_0.end_state` -> turn 2, goal 1: end state."""
    places = re.match(r"((?:[a-z]+_\d+\.)*)(.*)", name, re.DOTALL)
    assert places is not None
    where = [f"{place} {int(number) + 1}" for place, number in re.findall(r"([a-z]+)_(\d+)\.", places[1])]
    return ", ".join(where) + (": " if where else "") + places[2].replace("_", " ")


def chosen_facets(request: Request, names: Iterable[str]) -> dict[str, str]:
    """Facet -> the value that the address has for it."""
    return {name: value for name in names if (value := request.query_params.get(name))}


def page_links(request: Request, first: int, *, has_more: bool) -> dict[str, str | None]:
    """The addresses of the rows before and after these, as `earlier` and `later`; None where there are none."""
    query = {name: value for name, value in request.query_params.items() if name not in ("part", "first") and value}

    def address(at: int) -> str:
        return f"{request.url.path}?{urlencode(query | {'first': str(max(0, at))})}"

    return {
        "earlier": address(first - ROWS_A_PAGE) if first else None,
        "later": address(first + ROWS_A_PAGE) if has_more else None,
    }


def building_page(request: Request, title: str, noun: str, failure: str | None, *, part: bool) -> HTMLResponse:
    """The page of a list whose index is not there yet. failure: why it could not be made. part: of a search, which then asks again."""
    page = render(request, "index_building.html.j2", title=title, noun=noun, failure=failure)
    page.status_code = 503 if part else 200
    return page


def error_page(request: Request, message: str, status: int) -> HTMLResponse:
    page = render(request, "error.html.j2", message=message)
    page.status_code = status
    return page


def render(request: Request, template: str, **values: Any) -> HTMLResponse:
    """A page from a template of `templates/`."""
    templates: jinja2.Environment = request.app.state.templates
    html = templates.get_template(template).render(path=request.url.path, **values)
    return HTMLResponse(html.encode("utf-8", errors="replace"))  # a policy may write half a surrogate pair


def item_url(id: str) -> str:
    """The address of the page of any id."""
    page = _PAGE_OF_KIND.get(id.partition("-")[0], "/item")
    return f"{page}/{quote(id, safe='' if page == '/requests' else '/')}"


def link_ids(text: str) -> Markup:
    """The text, escaped, with every id as a link to its page."""
    parts, last = [], 0
    for match in _ID.finditer(text):
        parts.append(escape(text[last : match.start()]))
        parts.append(Markup('<a href="{}">{}</a>').format(item_url(match[0]), match[0]))
        last = match.end()
    return Markup("").join([*parts, escape(text[last:])])


def mark(text: str, part: str) -> Markup:
    """The text, escaped, with each occurrence of `part` marked, in any case."""
    if not part:
        return escape(text)
    pieces = re.split(f"({re.escape(part)})", text, flags=re.IGNORECASE)
    return Markup("").join(Markup("<mark>{}</mark>").format(piece) if at % 2 else escape(piece) for at, piece in enumerate(pieces))
