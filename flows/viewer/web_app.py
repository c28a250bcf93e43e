"""The web app of the viewer: its pages, what guards them, and errors in words.

Guards: a page that another website opens in the user's browser cannot read a store, because only requests by a name of this machine are
answered (a hostile name that resolves to loopback is refused), and browsers may not embed the answers; where the server listens beyond
loopback, a token is needed instead. One address writes, and only with the user's leave (`by_hand/write_access.py`). Pages load nothing from
outside, and run no script but the viewer's own: their content security policy says so. Texts of the store are escaped by the template
engine. It does not guard against other users of the same machine.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import anyio
import plotly.offline
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from flows.viewer.by_hand.write_access import WriteAccess
from flows.viewer.pages import (
    by_hand,
    compare_page,
    conversation_page,
    item,
    lineage_page,
    overview,
    point_map,
    request_page,
    requests,
    task_page,
    tasks,
    trajectories,
)
from flows.viewer.pages.worlds import cluster_page, fork_page, world_page
from flows.viewer.rendering import error_page, make_templates
from flows.viewer.viewed_store import ViewedStore
from storage.errors import HeadraceError
from storage.tombstones.withdrawn_rows import tombstone_of

_HERE = Path(__file__).parent
PAGES_AT_ONCE = 8
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_PAGES = (
    overview,
    request_page,
    requests,
    trajectories,
    conversation_page,
    tasks,
    task_page,
    world_page,
    cluster_page,
    fork_page,
    lineage_page,
    point_map,
    compare_page,
    by_hand,
    item,
)
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def create_app(viewed: ViewedStore, *, token: str | None = None, write_access: WriteAccess | None = None) -> FastAPI:
    """token: what a browser must send once (`?token=`), and any name of the machine is answered; None: loopback names only, no token.
    write_access: in whose name the viewer may write; None: it only reads."""
    app = FastAPI(
        title="Headrace", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(_send_withdrawn)], lifespan=_few_threads
    )
    app.state.viewed = viewed
    app.state.write_access = write_access
    app.state.templates = make_templates(viewed)
    for page in _PAGES:
        app.include_router(page.router)
    app.mount("/assets", StaticFiles(directory=_HERE / "assets"), name="assets")
    plotly_js = plotly.offline.get_plotlyjs()

    @app.get("/plotly.js")
    def plotly_library() -> Response:
        return Response(plotly_js, media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})

    @app.middleware("http")
    async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        response = _refusal(request, token) or _enter(request, token)
        try:
            response = response or await answer(request)
        except Exception as error:
            logging.getLogger("headrace.view").exception("page failed")
            response = error_page(request, f"The page could not be made: {type(error).__name__}: {error}", 500)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    _add_error_pages(app)
    return app


@asynccontextmanager
async def _few_threads(_: FastAPI) -> AsyncIterator[None]:
    """Few pages are made at a time, and the others wait in turn: more would only make each of them slower."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = PAGES_AT_ONCE
    yield


def _add_error_pages(app: FastAPI) -> None:
    @app.exception_handler(HeadraceError)
    def refused(request: Request, error: HeadraceError) -> HTMLResponse:
        return error_page(request, str(error), 404)

    @app.exception_handler(_Withdrawn)
    def withdrawn(request: Request, gone: _Withdrawn) -> RedirectResponse:
        return RedirectResponse(f"/item/{quote(str(gone))}", 303)

    @app.exception_handler(RequestValidationError)
    def unfit(request: Request, error: RequestValidationError) -> HTMLResponse:
        return error_page(request, f"The address has a value that does not fit: {error.errors()[0]['loc'][-1]}.", 400)

    @app.exception_handler(HTTPException)
    def absent(request: Request, error: HTTPException) -> HTMLResponse:
        what = f"has no page {request.url.path}" if error.status_code == 404 else f"does not answer this: {error.detail}"
        return error_page(request, f"The viewer {what}.", error.status_code)


class _Withdrawn(Exception):
    """The id of a row that was withdrawn."""


def _send_withdrawn(request: Request) -> None:
    """Sends the pages of withdrawn rows, which have no text any more, to the one that says so."""
    if request.url.path.startswith(("/item/", "/lineage/", "/assets/")) or not request.path_params:
        return
    viewed: ViewedStore = request.app.state.viewed
    for id in map(str, request.path_params.values()):
        if tombstone_of(viewed.store, id):
            raise _Withdrawn(id)


def _refusal(request: Request, token: str | None) -> Response | None:
    if token is None:
        name = re.sub(r":\d+$", "", request.headers.get("host", ""))
        return None if name in LOOPBACK_NAMES else PlainTextResponse("open the viewer by 127.0.0.1 or localhost", 403)
    sent = request.query_params.get("token") or request.cookies.get(_cookie(request)) or ""
    if secrets.compare_digest(sent.encode(), token.encode()):
        return None
    return PlainTextResponse("this viewer needs its token: open the address that `headrace view` printed", 401)


def _enter(request: Request, token: str | None) -> Response | None:
    """After the right token in the address: the same address without it, so that a shared address does not have it."""
    if token is None or "token" not in request.query_params:
        return None
    address = request.url.remove_query_params("token")
    response = RedirectResponse(f"{address.path}?{address.query}" if address.query else address.path, 303)
    response.set_cookie(_cookie(request), token, httponly=True, samesite="lax")
    return response


def _cookie(request: Request) -> str:
    """Cookies are shared by all ports of a machine, so each viewer has its own."""
    return f"headrace_view_{request.url.port or 80}"
