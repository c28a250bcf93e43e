"""By hand: the list of annotations, how far they agree with the funnel and the judge, their files; and where a form is sent."""

from __future__ import annotations

from typing import Annotated, Any

import polars as pl
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool

from filters.by_hand.hand_agreement import COMPARED, hand_agreement
from flows.viewer.by_hand.hand_form import read_annotation, working_flow
from flows.viewer.by_hand.write_access import NotAllowed, check_writes, read_form, write_access
from flows.viewer.indexes.conversation_index import FIRST_REQUEST
from flows.viewer.indexes.facets import count_facets
from flows.viewer.pages.point_map import find_inside
from flows.viewer.rendering import MOST_ROWS, ROWS_A_PAGE, chosen_facets, error_page, item_url, page_links, render
from flows.viewer.viewed_store import ViewedStore
from storage.by_hand.hand_files import to_csv, to_jsonl
from storage.by_hand.hand_rows import annotate, read_annotations
from storage.errors import BadInput, HeadraceError
from storage.store import Store

LOCK_WAIT_S = 5.0
"""How long a form waits for a flow that is committing."""
FACETS = ("verdict", "kind", "author")
_TYPES = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}

_TEXTS_SQL = f"""WITH items AS (SELECT unnest(?) AS id)
SELECT query_id, any_value(text) FROM queries WHERE query_id IN (SELECT id FROM items) GROUP BY query_id
UNION ALL SELECT trajectory_id, any_value({FIRST_REQUEST}) FROM trajectories WHERE trajectory_id IN (SELECT id FROM items) GROUP BY ALL
UNION ALL SELECT rollout_id, any_value({FIRST_REQUEST}) FROM rollouts WHERE rollout_id IN (SELECT id FROM items) GROUP BY ALL
UNION ALL SELECT frame_id, any_value(world || '/' || intent || slots) FROM frames WHERE frame_id IN (SELECT id FROM items) GROUP BY ALL"""

router = APIRouter()


@router.get("/by-hand")
def show_annotations(
    request: Request, text: str = "", first: Annotated[int, Query(ge=0, le=MOST_ROWS)] = 0, part: bool = False
) -> HTMLResponse:
    """text: a part of a comment or of an id. part: only the rows and facets, for a search as one types."""
    viewed: ViewedStore = request.app.state.viewed
    every, chosen, text = read_annotations(viewed.store), chosen_facets(request, FACETS), text.strip()
    fits = every.filter(_holds("comment", text) | _holds("item_id", text)) if text else every
    count, facets = count_facets(fits.group_by(FACETS).len("n"), FACETS, chosen)
    rows = fits.filter(*(pl.col(name) == value for name, value in chosen.items()))
    access = write_access(request)
    shown: dict[str, Any] = {"agreement": hand_agreement(viewed.store), "compared": COMPARED} if not part else {}
    return render(
        request,
        "by_hand_rows.html.j2" if part else "by_hand.html.j2",
        rows=_with_texts(viewed.store, rows[first : first + ROWS_A_PAGE]),
        count=count,
        facets=facets,
        chosen=chosen,
        text=text,
        first=first,
        total=every.height,
        author=access.author if access else None,
        working=working_flow(viewed.root),
        **shown,
        **page_links(request, first, has_more=rows.height > first + ROWS_A_PAGE),
    )


@router.get("/by-hand/download.{form}")
def download(request: Request, form: str) -> Response:
    """form: jsonl or csv. All annotations, the last first."""
    if form not in _TYPES:
        raise BadInput(f"there is no download as {form}; there are {', '.join(_TYPES)}")
    viewed: ViewedStore = request.app.state.viewed
    rows = read_annotations(viewed.store)
    text = to_jsonl(rows) if form == "jsonl" else to_csv(rows)
    name = f'attachment; filename="by_hand.{form}"'
    return Response(text.encode(), media_type=_TYPES[form], headers={"Content-Disposition": name})


@router.post("/by-hand")
async def annotate_by_hand(request: Request) -> Response:
    """Commits the annotation of a form, whole or not at all, and leads back to the page that it was sent from."""
    viewed: ViewedStore = request.app.state.viewed
    try:
        form = await read_form(request)
        access = check_writes(request, form)
        back = await run_in_threadpool(_commit, viewed, form, access.author)
    except NotAllowed as error:
        return error_page(request, str(error), 403)
    except BadInput as error:
        return error_page(request, f"Nothing was written: {error}.", 400)
    except HeadraceError as error:
        return error_page(request, f"Nothing was written: {error}.", 503)
    return RedirectResponse(back, 303)


def _commit(viewed: ViewedStore, form: dict[str, list[str]], author: str) -> str:
    """Returns the address of the page that the form was on."""
    page, inside = "".join(form.get("page", []))[:100], "".join(form.get("inside", []))
    back = f"{item_url(page)}#by-hand" if page else "/by-hand"
    if inside:
        form["item"], back = find_inside(viewed, inside)
    store = Store(viewed.store.root, lock_wait_s=LOCK_WAIT_S)
    annotate(store, read_annotation(store, form, author))
    return back


def _with_texts(store: Store, rows: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows, each with `about`: the text of a request, the first request of a conversation, what a frame asks for; or None."""
    texts = dict(store.query(_TEXTS_SQL, [rows["item_id"].unique().to_list()]).iter_rows())
    return [row | {"about": texts.get(row["item_id"])} for row in rows.iter_rows(named=True)]


def _holds(column: str, text: str) -> pl.Expr:
    return pl.col(column).fill_null("").str.to_lowercase().str.contains(text.lower(), literal=True)
