"""Damage to a finished store, its models, its notes and the server's folder, and to the checkpoint of a stage that was killed; then the
same command, a repair, and the command again.

damage_kinds: how many. damage_unexpected: kinds of which a call ended with a traceback, an `unexpected` error, or not at all.
damage_healed_equal_hash: kinds after which the store has the content hash of the undisturbed run and `store check` finds nothing.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from benchmarks.harness import Deadline, Figures
from benchmarks.operations.kills.processes import left_in
from benchmarks.operations.whole_runs import Ended, Pieces, copy_of, headrace, run, undisturbed
from storage.errors import HeadraceError
from storage.health.damage import check
from storage.store import Store

KEYS = ("damage_kinds", "damage_unexpected", "damage_healed_equal_hash")
MINUTES = 5.0
Harm = Callable[[Path], None]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(255 - byte for byte in content[middle : middle + 64])
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def scribble(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(20_000))


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def put(text: str) -> Harm:
    def write(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write


def empty(path: Path) -> None:
    remove(path)
    path.mkdir()


def as_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)


def first(pattern: str) -> Callable[[Path], Path]:
    return lambda folder: sorted(folder.glob(pattern))[0]


def at(name: str) -> Callable[[Path], Path]:
    return lambda folder: folder / name


def kinds() -> dict[str, tuple[Callable[[Path], Path], Harm]]:
    """Name -> where, in the folder of a run, and what is done there."""
    found: dict[str, tuple[Callable[[Path], Path], Harm]] = {}
    for table in ("trajectories", "queries", "rollouts", "policies"):
        for harm in (cut, flip, remove):
            found[f"a part of {table}: {harm.__name__}"] = (first(f"store/lake/{table}/*.parquet"), harm)
    found |= {
        "all parts of verdicts: remove": (at("store/lake/verdicts"), remove),
        "the lake: remove": (at("store/lake"), remove),
        "the catalogue: scribble": (at("store/catalog.duckdb"), scribble),
        "the catalogue: cut": (at("store/catalog.duckdb"), cut),
        "the catalogue: remove": (at("store/catalog.duckdb"), remove),
        "the read copy: cut": (at("store/catalog.read.duckdb"), cut),
        "the read copy: remove": (at("store/catalog.read.duckdb"), remove),
        "the log of commits: cut": (at("store/lake/_commits.jsonl"), cut),
        "the log of commits: remove": (at("store/lake/_commits.jsonl"), remove),
        "a journal: scribble": (at("store/lake/_journal/answers.jsonl"), put("\x00\x01 no JSON\n")),
        "a journal: a folder": (at("store/lake/_journal/answers.jsonl"), as_folder),
        "weights: flip": (first("store/models/*/model/model.safetensors"), flip),
        "weights: cut": (first("store/models/*/model/model.safetensors"), cut),
        "weights: remove": (first("store/models/*/model/model.safetensors"), remove),
        "a model's tokenizer: cut": (first("store/models/*/model/tokenizer.json"), cut),
        "a stage's result: cut": (first("store/models/*/result.json"), cut),
        "a stage's folder: remove": (first("store/models/*/"), remove),
        "the run file: a list": (at("store/.headrace/run.json"), put("[1, 2]")),
        "the run file: a number": (at("store/.headrace/run.json"), put("7")),
        "the work note: scribble": (at("store/.headrace/working.json"), put("{")),
        "the report: a folder": (at("report.html"), as_folder),
        "the server's database: flip": (first(".prefect/prefect-*.db"), flip),
        "the server's database: zero": (first(".prefect/prefect-*.db"), zero),
        "the server's database: scribble": (first(".prefect/prefect-*.db"), scribble),
    }
    return found


_CHECKPOINT = "store/models/*/checkpoints/step-*"


def kinds_of_checkpoints() -> dict[str, tuple[Callable[[Path], Path], Harm]]:
    """As `kinds`, in the folder of `killed_in_a_stage`."""
    return {
        "a checkpoint: cut": (first(f"{_CHECKPOINT}/optimizer.pt"), cut),
        "a checkpoint: flip": (first(f"{_CHECKPOINT}/model.safetensors"), flip),
        "a checkpoint: empty": (first(_CHECKPOINT), empty),
    }


@cache
def killed_in_a_stage(whole: Path) -> Path:
    """A copy of a run's folder where the last stage of the training, RL, was lost, begun again, and killed after its first checkpoint.

    Raises:
        RuntimeError: the stage ended, or failed, before it was killed.
    """
    folder = copy_of(whole, "killed")
    store = folder / "store"
    (last,) = Store(store).query("SELECT path FROM policies JOIN stages USING (stage_id) WHERE name = 'rl'")["path"]
    remove(store / last / "model.safetensors")
    headrace("store", "repair", "--store", str(store), folder=folder)
    ended = run(folder, kill_when=lambda: any(folder.glob(f"{_CHECKPOINT}/stage.json")))
    if ended.code != -1 or left_in(folder) or not any(folder.glob(_CHECKPOINT)):
        raise RuntimeError(f"the stage was not killed after a checkpoint: {ended.last_line}")
    return folder


def measure(deadline: Deadline) -> Figures:
    whole, expected = undisturbed()
    pieces = Pieces("damage")
    of_checkpoints = kinds_of_checkpoints()
    for name, (where, harm) in (kinds() | of_checkpoints).items():
        if name in pieces.kept:
            continue
        deadline.allows(MINUTES)
        folder = copy_of(killed_in_a_stage(whole) if name in of_checkpoints else whole, "damaged")
        harm(where(folder))
        calls = list(_cure(folder))
        is_healed = _is_whole(folder / "store", expected)
        pieces.keep(name, unexpected=any(call.is_unexpected for call in calls), healed=is_healed)
        said = next((call.last_line for call in calls if call.code), calls[-1].last_line)
        print(f"    {name}: {'healed' if is_healed else 'NOT healed'} after {len(calls)} calls; {said[:140]}", flush=True)
    return {
        "damage_kinds": len(pieces.kept),
        "damage_unexpected": pieces.total("unexpected"),
        "damage_healed_equal_hash": pieces.total("healed"),
    }


def _cure(folder: Path) -> Iterator[Ended]:
    """The same command; where it fails, or the store is not whole after it, a repair and the command again."""
    yield (ended := run(folder, limit_s=300.0))
    store = folder / "store"
    with _damage_expected():
        if ended.code == 0 and not check(store):
            return
    yield headrace("store", "repair", "--store", str(store), folder=folder)
    yield run(folder, limit_s=300.0)


@contextmanager
def _damage_expected() -> Iterator[None]:
    """A store that cannot be checked is not whole."""
    try:
        yield
    except HeadraceError:
        return


def _is_whole(store: Path, expected: str) -> bool:
    try:
        return Store(store).content_hash() == expected and not check(store)
    except HeadraceError:
        return False
