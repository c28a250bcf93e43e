"""The lineage of an item as a drawing: what it was made from to the left, what was made from it to the right.

One idea: a kind with few items has a box for each; of a kind with many, one box stands for all, so that the drawing of a policy that
learned from thousands of tasks is as small as that of one query. Columns follow the longest way from the ground up. It computes places
alone; the template draws them, with links, in the colours of the page's theme.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from storage.releases.lineage_graph import ORDER

MOST_BOXES = 4
"""Most items of a kind that have a box of their own."""
_WIDTH, _HEIGHT, _ROW, _GAP, _MARGIN = 112, 44, 56, 26, 4
"""Pixels of a box, from row to row, between columns, around the drawing."""
_LABEL_LENGTH = 13
_SWEEPS = 4

Key = tuple[str, str]
"""Kind and id of a box; the id is empty where the box stands for several items."""


@dataclass(frozen=True, slots=True)
class LineageBox:
    """title: kind, or number and kind; label: id or name; is_start: whether it is the item itself. x, y: of the upper left corner."""

    kind: str
    id: str
    title: str
    label: str
    is_start: bool
    x: int
    y: int
    width: int = _WIDTH
    height: int = _HEIGHT


@dataclass(frozen=True)
class LineageDrawing:
    """width, height: in pixels. arrows: paths of an SVG, each with the number of its edges."""

    width: int
    height: int
    boxes: list[LineageBox]
    arrows: list[tuple[str, int]]


def draw_lineage(start: Key, nodes: pl.DataFrame, edges: pl.DataFrame, name_of: Callable[[str, str], str]) -> LineageDrawing:
    """nodes: columns kind, id, without the start, and without releases, whose splits stand for them. edges: as from `edges_between`.
    name_of: kind and id -> a short name."""
    of_kind: dict[str, list[str]] = defaultdict(list)
    for kind, id in nodes.filter(pl.col("kind") != "release").iter_rows():
        of_kind[kind].append(id)
    crowds = {kind: ids for kind, ids in of_kind.items() if len(ids) > MOST_BOXES}

    def key(kind: str, id: str) -> Key:
        return (kind, "") if kind in crowds and (kind, id) != start else (kind, id)

    keys = [start, *dict.fromkeys(key(kind, id) for kind, ids in of_kind.items() for id in ids)]
    counts: dict[tuple[Key, Key], int] = defaultdict(int)
    for child_kind, child, parent_kind, parent in edges.iter_rows():
        pair = key(parent_kind, parent), key(child_kind, child)
        if pair[0] != pair[1] and pair[0] in keys and pair[1] in keys:
            counts[pair] += 1
    columns = _columns(keys, counts)
    tallest = max(map(len, columns))
    boxes: dict[Key, LineageBox] = {}
    for place, column in enumerate(columns):
        top = _MARGIN + (tallest - len(column)) * _ROW // 2
        for row, (kind, id) in enumerate(column):
            label = _short(name_of(kind, id)) if id else ""
            title = kind if id else f"{len(crowds[kind]):,} {plural(kind)}"
            x, y = _MARGIN + place * (_WIDTH + _GAP), top + row * _ROW
            boxes[kind, id] = LineageBox(kind, id, title, label, (kind, id) == start, x, y)
    arrows = [(_path(boxes[parent], boxes[child]), n) for (parent, child), n in sorted(counts.items())]
    width = 2 * _MARGIN + len(columns) * (_WIDTH + _GAP) - _GAP
    return LineageDrawing(width, 2 * _MARGIN + tallest * _ROW, list(boxes.values()), arrows)


def plural(kind: str) -> str:
    return f"{kind[:-1]}ies" if kind.endswith(("cy", "ry")) else f"{kind}s"


def _short(name: str) -> str:
    return name if len(name) <= _LABEL_LENGTH else f"{name[: _LABEL_LENGTH - 1]}…"


def _columns(keys: Iterable[Key], counts: Mapping[tuple[Key, Key], int]) -> list[list[Key]]:
    """The boxes by the longest way that leads to them, each column in an order that crosses few arrows. Where boxes of several items lead
    to each other in a circle, an arrow against the order of kinds, as from a policy to its rollouts, counts for nothing."""
    children: dict[Key, list[Key]] = defaultdict(list)
    neighbours: dict[Key, list[Key]] = defaultdict(list)
    for parent, child in counts:
        children[parent].append(child)
        neighbours[child].append(parent)
        neighbours[parent].append(child)
    parents: dict[Key, list[Key]] = defaultdict(list)
    for parent, child in counts:
        if ORDER.index(parent[0]) < ORDER.index(child[0]) or parent not in _reached(child, children):
            parents[child].append(parent)
    depths: dict[Key, int] = {}

    def depth(one: Key) -> int:
        if one not in depths:
            depths[one] = max((depth(parent) + 1 for parent in parents[one]), default=0)
        return depths[one]

    by_depth: dict[int, list[Key]] = defaultdict(list)
    for one in sorted(keys, key=lambda one: (ORDER.index(one[0]), one[1])):
        by_depth[depth(one)].append(one)
    columns = [by_depth[place] for place in sorted(by_depth)]
    for _ in range(_SWEEPS):
        for column in (*columns, *reversed(columns)):
            row = {one: (place + 0.5) / len(each) for each in columns for place, one in enumerate(each)}
            means = {one: sum(row[other] for other in neighbours[one]) / max(1, len(neighbours[one])) for one in column}
            column.sort(key=means.__getitem__)
    return columns


def _reached(start: Key, children: Mapping[Key, Sequence[Key]]) -> set[Key]:
    reached, ahead = set[Key](), [start]
    while ahead:
        one = ahead.pop()
        if one not in reached:
            reached.add(one)
            ahead += children.get(one, ())
    return reached


def _path(source: LineageBox, target: LineageBox) -> str:
    start, end = source.x + source.width, target.x
    left, right = source.y + source.height // 2, target.y + target.height // 2
    if end > start:
        bend = (end - start) // 2
        return f"M{start} {left} C{start + bend} {left} {end - bend} {right} {end - 3} {right}"
    return f"M{start} {left} C{start + _GAP} {left - _ROW} {end - _GAP} {right - _ROW} {end - 3} {right}"
