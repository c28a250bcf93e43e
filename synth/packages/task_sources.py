"""Where the tasks of a package come from: a release of a store, or drills drawn in worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.errors import BadInput
from storage.records import Task
from storage.releases.dataset_card import licences_text, sources_of
from storage.releases.release import load_split, manifest_of
from storage.store import Store
from synth.blueprints.single_goal import draw_drills
from synth.packages.package_contents import Contents, choose, why_world_stays
from synth.tasks.split import STANDARD
from synth.worlds import WORLDS
from synth.worlds.stored_worlds import register_stored

OWN_LICENCE = "Apache-2.0"
"""Of what Headrace ships and draws."""


def of_release(store: Store, release_id: str, name: str, licences: Mapping[str, str]) -> Contents:
    """The tasks of a release, each once. licences: of the sources of raw queries.

    Raises:
        BadInput: no such release, or none of its tasks can travel.
    """
    register_stored(store)
    manifest = manifest_of(store, release_id)
    tasks = [item.task for split in manifest["splits"] for item in load_split(store, release_id, split) if item.task is not None]
    origin = f"Release `{release_id}` ({manifest['name']}); `headrace lineage {release_id}` shows what it was made from."
    stated = {licences.get(source) for source, _ in sources_of(store, release_id)} or {OWN_LICENCE}
    return choose(name, tasks, origin, [licences_text(store, release_id, licences)], stated.pop() if len(stated) == 1 else None)


def of_worlds(worlds: Sequence[str], count: int, name: str, *, seed: int = 0) -> Contents:
    """`count` single requests of each world, drawn evenly over its intents; those of held-out frames are of split `eval_out`.

    Raises:
        BadInput: a world cannot travel, or gives no task that can.
    """
    for world in worlds:
        if (reason := why_world_stays(world)) is not None:
            raise BadInput(f"no task can be packaged of world {world}, {reason}")
    tasks: list[Task] = [drill.task for world in worlds for drill in draw_drills(WORLDS[world], count, (), STANDARD, seed=seed)]
    own = [world for world in worlds if "@" in world]
    licence = f"Requests, worlds and tools that Headrace ships are under {OWN_LICENCE}."
    if own:
        licence += f" Not of Headrace, their licence not stated: {', '.join(own)}."
    return choose(
        name, tasks, f"Single requests drawn in {', '.join(worlds)} with seed {seed} (`headrace package`).", [licence], OWN_LICENCE
    )
