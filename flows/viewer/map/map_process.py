"""The process that makes a map, so that the viewer stays quick and its memory small: `python -m flows.viewer.map.map_process ARGUMENTS`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flows.viewer.map.map_rows import KINDS
from storage.store import Store
from train.child_process import dying_with_parent


def main(arguments: list[str]) -> None:
    """arguments: process id of the viewer, folder of the store, kind of rows, file of the places, file of the points.

    Without a file of the points, the file of the places is written; with one, the points.
    """
    parent, root, kind, places, *points = arguments
    dying_with_parent(int(parent))()
    os.nice(10)
    if points:
        from flows.viewer.map.map_points import write_points

        write_points(Store(Path(root)), KINDS[kind], Path(places), Path(points[0]))
    else:
        from flows.viewer.map.map_places import write_places

        write_places(Store(Path(root)), KINDS[kind], Path(places))


if __name__ == "__main__":
    main(sys.argv[1:])
