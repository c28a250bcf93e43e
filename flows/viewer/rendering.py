"""How pages are written: the template engine with its filters, and ids that lead to their pages. Every text of a store is escaped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup, escape

from flows.viewer.viewed_store import ViewedStore
from storage.conversation import mode_in_words
from storage.explanations.funnel_reasons import reason_in_words

PAGES = (("/", "Overview"), ("/requests", "Requests"), ("/trajectories", "Trajectories"))
_ID = re.compile(r"\b(?:query|frame|task|traj|trajectory|rollout|blueprint|cluster|tool|stage|policy|release|evaluation)-[0-9a-f]{8,32}\b")


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
        "facet": _facet_in_words,
        "inert": lambda json_text: Markup(json_text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")),
        "item_url": item_url,
    }
    environment.globals |= {"pages": PAGES, "store_name": viewed.name, "store_root": str(viewed.root)}
    return environment


def _facet_in_words(value: str, column: str) -> str:
    if column == "reason":
        return reason_in_words(value)
    return mode_in_words(value) if column == "mode" else value.replace("_", " ")


def render(request: Request, template: str, **values: Any) -> HTMLResponse:
    """A page from a template of `templates/`."""
    return _page(request, template, 200, values)


def error_page(request: Request, message: str, status: int) -> HTMLResponse:
    return _page(request, "error.html.j2", status, {"message": message})


def _page(request: Request, template: str, status: int, values: dict[str, Any]) -> HTMLResponse:
    templates: jinja2.Environment = request.app.state.templates
    html = templates.get_template(template).render(path=request.url.path, **values)
    return HTMLResponse(html.encode("utf-8", errors="replace"), status)  # a policy may write half a surrogate pair


def item_url(id: str) -> str:
    return f"/item/{quote(id, safe='/')}"


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
