"""Files that a store takes no row of again, because they were withdrawn from it: they are left out of what a run reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from filters.ingest import ID_DIGITS, Source
from storage.errors import BadInput
from storage.store import Store
from storage.tombstones.withdrawn_rows import withdrawn_files


def leave_out_withdrawn(store: Store, sources: Sequence[Source]) -> tuple[list[Source], list[str]]:
    """The other files, numbered anew, and a sentence for each that is left out: one with the name or the content of a withdrawn one.

    Raises:
        BadInput: no other file is left.
    """
    withdrawn = withdrawn_files(store)
    admitted, notes = list[Source](), list[str]()
    for source in sources:
        found = withdrawn.get(f"q-{source.content_hash[:ID_DIGITS]}") or withdrawn.get(source.name)
        if found:
            notes.append(f"{source.location} is not read into {store.root} again: {found}")
        else:
            admitted.append(replace(source, first_row=admitted[-1].first_row + admitted[-1].rows if admitted else 0))
    if notes and not admitted:
        raise BadInput(f"{'; '.join(notes)}; no other file is named")
    return admitted, notes
