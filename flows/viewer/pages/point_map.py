"""The map: requests, trajectories or draws as points, coloured by a column; where two sets differ; and what is inside a part of it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from numpy.typing import NDArray

from flows.viewer.by_hand.write_access import write_access
from flows.viewer.indexes.conversation_index import FACETS as CONVERSATION_FACETS
from flows.viewer.indexes.request_index import FACETS
from flows.viewer.map.map_index import DIFFERENCE_CELLS, MOST_CORNERS, Area, Comparison, MapIndex
from flows.viewer.map.map_points import CELLS, HIGH, LOW
from flows.viewer.map.map_rows import KINDS
from flows.viewer.rendering import MOST_ROWS, ROWS_A_PAGE, page_links, render
from flows.viewer.viewed_store import ViewedStore
from storage.by_hand.hand_rows import MOST_ITEMS
from storage.errors import BadInput

_FIRST_BUILD_WAIT_S = 0.3
_SEARCHED = {
    "requests": ("/requests?", {"verdict", *FACETS}),
    "trajectories": ("/trajectories?of=trajectories&", {"accepted", *CONVERSATION_FACETS["trajectories"]}),
    "rollouts": ("/trajectories?of=draws&", set(CONVERSATION_FACETS["draws"]) - {"policy"}),
}
"""Kind -> the page that searches it, and the columns by which that page can be narrowed."""

router = APIRouter()


@router.get("/map")
def show_map(request: Request, of: str = "", colour: str = "", first: str = "", second: str = "", part: bool = False) -> HTMLResponse:
    """of: a kind of rows; colour: a column; first, second: two sets to compare, `column:value`. part: only the table of regions."""
    viewed: ViewedStore = request.app.state.viewed
    kinds = {kind: index for kind, index in viewed.maps.items() if not index.is_empty()}
    index = _map_of(viewed, of or next(iter(kinds), "requests"))
    if index.name not in kinds:
        return render(request, "map_empty.html.j2", kinds=KINDS, of=index.name)
    if not index.refresh(_FIRST_BUILD_WAIT_S):
        page = render(request, "map_building.html.j2", index=index)
        page.status_code = 503 if part else 200
        return page
    compared = index.compare(first, second) if first and second else None
    total, drawn = index.size()
    return render(
        request,
        "map_regions.html.j2" if part else "map.html.j2",
        index=index,
        is_current=index.is_current(),
        kinds={kind: KINDS[kind] for kind in kinds},
        colour=colour if colour in index.kind.columns else next(iter(index.kind.columns)),
        first=first,
        second=second,
        labels=[_set_in_words(request, index, chosen) for chosen in (first, second)],
        compared=compared,
        regions=_ordered(index.regions(), compared),
        total=total,
        drawn=drawn,
    )


@router.get("/map/points")
def points(request: Request, of: str) -> Response:
    """A header, then x and y of every drawn point as 32-bit floats."""
    index = _ready(request, of)
    total, places = index.drawn()
    regions = [{name: region[name] for name in ("region", "name", "x", "y", "n")} for region in index.regions()]
    return _packed({"total": total, "count": len(places), "cells": CELLS, "low": LOW, "high": HIGH, "regions": regions}, places)


@router.get("/map/colours")
def colours(request: Request, of: str, by: str) -> Response:
    """A header with the legend, then a byte for every drawn point: the number of its value in the legend, 0 for others, 255 for none."""
    index = _ready(request, of)
    values, codes = index.colours(by)
    counts = np.bincount(codes, minlength=256)
    label = _label_of(request)
    legend = [{"label": label(value, by), "count": n} for value, n in values]
    return _packed({"legend": legend, "others": int(counts[0]), "none": int(counts[255])}, codes)


@router.get("/map/difference")
def difference(request: Request, of: str, first: str, second: str) -> Response:
    """A header, then the density of the first set minus that of the second in every cell, -1 to 1, as 32-bit floats."""
    index = _ready(request, of)
    compared = index.compare(first, second)
    labels = [_set_in_words(request, index, chosen) for chosen in (first, second)]
    header = {"cells": DIFFERENCE_CELLS, "low": LOW, "high": HIGH, "labels": labels, "counts": compared.counts}
    return _packed(header, compared.difference)


@router.get("/map/point")
def point(request: Request, of: str, number: Annotated[int, Query(ge=0, le=MOST_ROWS)]) -> HTMLResponse:
    index = _ready(request, of)
    return render(request, "map_point.html.j2", index=index, row=index.point(number))


@router.get("/map/inside")
def inside(
    request: Request,
    of: str,
    region: Annotated[int | None, Query(ge=0, le=255)] = None,
    lasso: str = "",
    first: Annotated[int, Query(ge=0, le=MOST_ROWS)] = 0,
    part: bool = False,
) -> HTMLResponse:
    """What is in a region or inside a lasso: `x,y,x,y ...`. part: only the list, for a lasso as one draws."""
    index = _ready(request, of)
    area = _area(region, lasso)
    count, frequent = index.count_inside(area)
    rows = index.rows_inside(area, first=first, count=ROWS_A_PAGE + 1)
    address, narrowed_by = _SEARCHED.get(of, ("", set()))
    where = _where(of, region, lasso)
    return render(
        request,
        "map_rows.html.j2" if part else "map_inside.html.j2",
        index=index,
        name=next((one["name"] for one in index.regions() if one["region"] == region), ""),
        is_lasso=bool(lasso),
        count=count,
        frequent=frequent,
        links={
            column: {value: f"{address}{urlencode({column: value})}" for value, _ in values}
            for column, values in frequent.items()
            if column in narrowed_by
        },
        rows=rows[:ROWS_A_PAGE],
        first=first,
        where=where,
        access=write_access(request),
        nonce=secrets.token_hex(8),
        most_items=MOST_ITEMS,
        **page_links(request, first, has_more=len(rows) > ROWS_A_PAGE),
    )


@router.get("/map/ids")
def ids(request: Request, of: str, region: Annotated[int | None, Query(ge=0, le=255)] = None, lasso: str = "") -> StreamingResponse:
    """Ids of what is in a region or inside a lasso, one a line."""
    index = _ready(request, of)
    headers = {"Content-Disposition": f'attachment; filename="{of}.txt"'}
    return StreamingResponse(index.ids_inside(_area(region, lasso)), media_type="text/plain", headers=headers)


def find_inside(viewed: ViewedStore, query: str) -> tuple[list[str], str]:
    """The ids of what is in a region or inside a lasso, and the address of its list. query: of that address.

    Raises:
        BadInput: the query names no part of a map.
    """
    named = dict(parse_qsl(query))
    of, lasso, region = named.get("of", ""), named.get("lasso", ""), named.get("region", "")
    index = _map_of(viewed, of)
    if not index.refresh():
        raise BadInput(f"the map of {of} is not made yet")
    number = int(region) if region.isdecimal() and len(region) < 4 else None
    ids = "".join(index.ids_inside(_area(number, lasso))).split()
    return ids, f"/map/inside?{_where(of, number, lasso)}"


def _where(of: str, region: int | None, lasso: str) -> str:
    return urlencode({"of": of} | ({"lasso": lasso} if lasso else {"region": region}))


def _map_of(viewed: ViewedStore, of: str) -> MapIndex:
    if of not in viewed.maps:
        raise BadInput(f"there is no map of {of}; there are maps of {', '.join(viewed.maps)}")
    return viewed.maps[of]


def _ready(request: Request, of: str) -> MapIndex:
    index = _map_of(request.app.state.viewed, of)
    if not index.refresh():
        raise BadInput(f"the map of {of} is not made yet; open /map, which makes it")
    return index


def _area(region: int | None, lasso: str) -> Area:
    if not lasso:
        if region is None:
            raise BadInput("the address names no part of the map: it needs `region` or `lasso`")
        return Area(region=region)
    try:
        corners = np.array([float(number) for number in lasso.split(",")]).reshape(-1, 2)
    except ValueError:
        raise BadInput("the lasso is no list of corners: it needs x,y,x,y and so on") from None
    if not 3 <= len(corners) <= MOST_CORNERS or not np.isfinite(corners).all():
        raise BadInput(f"a lasso has 3 to {MOST_CORNERS} corners, all of them numbers; this one has {len(corners)}")
    return Area(lasso=corners)


def _packed(header: dict[str, Any], numbers: NDArray[Any]) -> Response:
    """Four bytes with the header's length, the header as JSON, padded to four bytes, and the numbers."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 4)
    return Response(len(text).to_bytes(4, "little") + text + numbers.tobytes(), media_type="application/octet-stream")


def _label_of(request: Request) -> Callable[[str, str], str]:
    label: Callable[[str, str], str] = request.app.state.templates.filters["facet"]
    return label


def _set_in_words(request: Request, index: MapIndex, chosen: str) -> str:
    column, _, value = chosen.partition(":")
    return f"{index.kind.columns.get(column, column)}: {_label_of(request)(value, column)}" if chosen else ""


def _ordered(regions: list[dict[str, Any]], compared: Comparison | None) -> list[dict[str, Any]]:
    """The regions, with their shares of both sets; those that differ most first."""
    if compared is None:
        return regions
    regions = [region | {"shares": compared.shares.get(region["region"], (0.0, 0.0))} for region in regions]
    return sorted(regions, key=lambda region: -abs(region["shares"][0] - region["shares"][1]))
