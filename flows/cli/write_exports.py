"""`headrace export` of what is no release: kept queries, and annotations by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from flows import validation
from storage.by_hand.hand_files import describe_files, write_files
from storage.by_hand.hand_rows import read_annotations
from storage.errors import BadInput
from storage.releases.export_folder import write_export
from storage.releases.export_queries import export_queries
from storage.store import Store


def export_curated(store: Store, run: str | None, folder: Path, licence: list[str]) -> Path:
    """Writes the kept queries and returns the folder."""
    return export_queries(store, folder, validation.resolve_curation(store, run), licences=validation.split_licences(licence))


def export_annotations(store: Store, folder: Path, given: Sequence[str]) -> Path:
    """Writes all annotations and returns the folder. given: options of other exports that the user gave.

    Raises BadInput: an option was given, there are none, or the folder holds something else.
    """
    if given:
        raise BadInput(f"--by-hand writes all annotations; leave out {', '.join(given)}")
    rows = read_annotations(store)
    if rows.is_empty():
        raise BadInput(f"{store.root}: there are no annotations by hand; `headrace view --write` makes them")
    manifest = {"annotations": rows.height}
    return write_export(folder, "exporting annotations", manifest, partial(write_files, rows), partial(describe_files, rows))
