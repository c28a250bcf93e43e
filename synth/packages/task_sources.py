"""Where the tasks of a package come from: a release of a store, or drills drawn in worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.records import Task
from storage.releases.dataset_card import licences_text
from storage.releases.release import load_split, manifest_of
from storage.store import Store
from synth.blueprints.single_goal import draw_drills
from synth.packages.package_contents import Contents, choose
from synth.tasks.split import STANDARD
from synth.worlds import WORLDS
from synth.worlds.stored_worlds import register_stored


def of_release(store: Store, release_id: str, name: str, licences: Mapping[str, str]) -> Contents:
    """The tasks of a release, each once. licences: of the sources of raw queries.

    Raises:
        BadInput: no such release, or none of its tasks can travel.
    """
    register_stored(store)
    manifest = manifest_of(store, release_id)
    tasks = [item.task for split in manifest["splits"] for item in load_split(store, release_id, split) if item.task is not None]
    origin = f"Release `{release_id}` ({manifest['name']}); `headrace lineage {release_id}` shows what it was made from."
    return choose(name, tasks, origin, [licences_text(store, release_id, licences)])


def of_worlds(worlds: Sequence[str], count: int, name: str, *, seed: int = 0) -> Contents:
    """`count` single requests of each world, drawn evenly over its intents; those of held-out frames are of split `eval_out`.

    Raises:
        BadInput: a world gives no task that can travel.
    """
    tasks: list[Task] = [drill.task for world in worlds for drill in draw_drills(WORLDS[world], count, (), STANDARD, seed=seed)]
    own = [world for world in worlds if "@" in world]
    licence = "Requests, worlds and tools that Headrace ships are under Apache-2.0."
    if own:
        licence += f" Not of Headrace, their licence not stated: {', '.join(own)}."
    return choose(name, tasks, f"Single requests drawn in {', '.join(worlds)} with seed {seed} (`headrace package`).", [licence])
