"""A graph of tools as a drawing: a column for each step of the longest chain, an arrow from the tool that gives a value to the one that
takes it. It computes places alone; the template draws them, with links, in the colours of the page's theme."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage.records import Tool
from synth.clusters.edges import Edge, chain_depths

_CHARACTER, _PADDING = 7.3, 20
"""Pixels of a letter of a label, and beside it."""
_HEIGHT, _ROW, _GAP, _MARGIN = 28, 40, 90, 8
"""Pixels of a box, from row to row, between columns, around the drawing."""
_SWEEPS = 4
"""Times that all columns are put in order."""


@dataclass(frozen=True, slots=True)
class Box:
    """A tool at its place, in pixels. width: of the box."""

    id: str
    label: str
    url: str
    changes_state: bool
    x: int
    y: int
    width: int
    height: int = _HEIGHT

    @property
    def middle(self) -> int:
        return self.y + self.height // 2


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge as a path of an SVG. text: what it passes."""

    path: str
    text: str
    source: str
    target: str


@dataclass(frozen=True)
class Drawing:
    """width, height: in pixels."""

    width: int
    height: int
    boxes: list[Box]
    arrows: list[Arrow]
    edges: Sequence[Edge]
    labels: Mapping[str, str]


def draw_tools(tools: Sequence[Tool], edges: Sequence[Edge], urls: Mapping[str, str]) -> Drawing:
    """urls: tool id -> where its box leads."""
    by_id = {tool.id: tool for tool in tools}
    edges = [edge for edge in edges if edge.source in by_id and edge.target in by_id]
    names = [tool.name for tool in tools]
    labels = {id: tool.name if names.count(tool.name) == 1 else id for id, tool in by_id.items()}
    columns = _columns(list(by_id), edges)
    tallest = max(map(len, columns), default=0)
    boxes, x = list[Box](), _MARGIN
    for column in columns:
        width = round(max(len(labels[id]) for id in column) * _CHARACTER) + _PADDING
        top = _MARGIN + (tallest - len(column)) * _ROW // 2
        boxes += [Box(id, labels[id], urls[id], by_id[id].changes_state, x, top + row * _ROW, width) for row, id in enumerate(column)]
        x += width + _GAP
    at = {box.id: box for box in boxes}
    arrows = [Arrow(_path(at[edge.source], at[edge.target]), edge.entity.replace("_", " "), edge.source, edge.target) for edge in edges]
    return Drawing(x - _GAP + _MARGIN + _GAP // 2, 2 * _MARGIN + tallest * _ROW, boxes, arrows, edges, labels)


def _columns(ids: Sequence[str], edges: Sequence[Edge]) -> list[list[str]]:
    """The tools by depth, each column in an order that crosses few edges: by the mean row of a tool's neighbours, swept to and fro."""
    depths = chain_depths(ids, edges)
    by_depth: dict[int, list[str]] = defaultdict(list)
    for id in ids:
        by_depth[depths[id]].append(id)
    columns = [by_depth[depth] for depth in sorted(by_depth)]
    neighbours: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        neighbours[edge.source].append(edge.target)
        neighbours[edge.target].append(edge.source)
    for _ in range(_SWEEPS):
        for column in (*columns, *reversed(columns)):
            row = {id: (place + 0.5) / len(each) for each in columns for place, id in enumerate(each)}
            means = {id: sum(row[other] for other in neighbours[id]) / len(neighbours[id]) if neighbours[id] else 2.0 for id in column}
            column.sort(key=lambda id: means[id])
    return columns


def _path(source: Box, target: Box) -> str:
    """From the right side of a box to the left side of another; to its right side if that lies no further right."""
    start, end = source.x + source.width, target.x
    if end > start:
        bend = max(30, (end - start) // 2)
        return f"M{start} {source.middle} C{start + bend} {source.middle} {end - bend} {target.middle} {end - 2} {target.middle}"
    end = target.x + target.width
    out = max(start, end) + _GAP // 3
    return f"M{start} {source.middle} C{out} {source.middle} {out} {target.middle} {end + 2} {target.middle}"
