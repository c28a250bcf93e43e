"""The web app of the viewer: its pages, what guards them, and errors in words.

Guards: a page that another website opens in the user's browser cannot read a store, because only requests by a name of this machine are
answered (a hostile name that resolves to loopback is refused); where the server listens beyond loopback, a token is needed as well. Pages
load nothing from outside, and run no script but the viewer's own: their content security policy says so. Texts of the store are escaped by
the template engine.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import plotly.offline
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles

from flows.viewer.pages import item, overview, requests, trajectories
from flows.viewer.rendering import error_page, make_templates
from flows.viewer.viewed_store import ViewedStore
from storage.errors import HeadraceError

_HERE = Path(__file__).parent
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
TOKEN_COOKIE = "headrace_view_token"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def create_app(viewed: ViewedStore, *, token: str | None = None) -> FastAPI:
    """token: what a browser must send once (`?token=`), and any name of the machine is answered; None: loopback names only, no token."""
    app = FastAPI(title="Headrace", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.viewed = viewed
    app.state.templates = make_templates(viewed)
    for page in (overview, requests, trajectories, item):
        app.include_router(page.router)
    app.mount("/assets", StaticFiles(directory=_HERE / "assets"), name="assets")
    plotly_js = plotly.offline.get_plotlyjs()

    @app.get("/plotly.js")
    def plotly_library() -> Response:
        return Response(plotly_js, media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})

    @app.middleware("http")
    async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        refusal = _refusal(request, token)
        response = await answer(request) if refusal is None else refusal
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        if token is not None and refusal is None and "token" in request.query_params:
            response.set_cookie(TOKEN_COOKIE, token, httponly=True, samesite="strict")
        return response

    @app.exception_handler(HeadraceError)
    def refused(request: Request, error: HeadraceError) -> HTMLResponse:
        return error_page(request, str(error), 404)

    @app.exception_handler(404)
    def absent(request: Request, error: Exception) -> HTMLResponse:
        return error_page(request, f"The viewer has no page {request.url.path}.", 404)

    @app.exception_handler(Exception)
    def failed(request: Request, error: Exception) -> HTMLResponse:
        return error_page(request, f"The page could not be made: {type(error).__name__}: {error}", 500)

    return app


def _refusal(request: Request, token: str | None) -> Response | None:
    if token is None:
        name = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
        return None if name in LOOPBACK_NAMES else PlainTextResponse("open the viewer by 127.0.0.1 or localhost", 403)
    sent = request.query_params.get("token") or request.cookies.get(TOKEN_COOKIE) or ""
    if secrets.compare_digest(sent.encode(), token.encode()):
        return None
    return PlainTextResponse("this viewer needs its token: open the address that `headrace view` printed", 401)
