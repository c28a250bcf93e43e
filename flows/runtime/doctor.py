"""`headrace doctor`: is this installation whole, and what can it do here?

One idea: each check is a function that returns findings; a finding is fine, worth knowing, or broken, and a broken one says what to do.
Versions are compared with what the installed package itself demands, so it works from a wheel, without the repository.
It changes nothing and imports none of the heavy libraries that it asks about.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flows.runtime.server import is_healthy, named_server

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from flows.config import Config

ROOMS = ("flows", "train", "filters", "synth", "storage")
LEAST_FREE_GIB = 3.0
WORTH_KNOWING = {
    "train": "training needs it: pip install 'headrace[train]'",
    "ray": "only to send work to a Ray cluster: pip install 'headrace[ray]'",
    "sandbox": "only to run the code tool in Docker: pip install 'headrace[sandbox]'",
}


@dataclass(frozen=True)
class Finding:
    state: Literal["ok", "note", "broken"]
    what: str
    detail: str


def findings() -> list[Finding]:
    """All checks, in the order in which a person would ask."""
    return [*_python(), *_rooms(), *_requirements(), *_disk(), *_threads(), *_sandboxes(), *_server()]


def configured_findings(config: Config) -> list[Finding]:
    """Of a configuration that could be read: of its store, of the engines that it names, and of what its stages need."""
    asked = (config.curate.ground.engine, config.curate.difficulty.engine)
    named = {*config.synthesize.roles.engines.values(), *(name for name in asked if name is not None)}
    return [*_store(config), *map(_looked_at, sorted(named)), *_backends(config)]


def _store(config: Config) -> list[Finding]:
    """That every part that the store counts on is there, whole to its last row."""
    from storage.parts import rows_on_disk
    from storage.store import Store

    store = Store(config.store)
    found = [Finding("ok", "configuration", "every key is known and every value in range")]
    if not store.exists():
        return [*found, Finding("note", "store", f"{config.store} is not there yet; the first flow makes it")]
    parts = store.query("SELECT path, rows FROM parts ORDER BY path").rows()
    bad = [path for path, rows in parts if rows_on_disk(store.root / path) != rows]
    if bad:
        advice = "restore them from a copy, or begin a new store"
        what = f"of {len(parts)} parts of {config.store} {len(bad)} are gone or damaged, first {bad[0]} ({advice})"
        return [*found, Finding("broken", "store", what)]
    return [*found, Finding("ok", "store", f"{config.store}: {len(parts):,} parts, content hash {store.content_hash()[:16]}")]


def _backends(config: Config) -> Iterator[Finding]:
    """What the stages' backends need."""
    from flows.validation import needs
    from storage.errors import HeadraceError

    for stages, need in needs(config):
        detail = f"{need.wanted} ({', '.join(stages)})"
        try:
            if need.check is not None:
                need.check(0.0)
        except HeadraceError as error:
            yield Finding("broken", need.name, str(error))
        else:
            yield Finding("ok", need.name, detail) if need.check is not None else Finding("note", need.name, detail)


def _looked_at(name: str) -> Finding:
    """Of an engine that a configuration names; nothing is started for it."""
    from storage.errors import HeadraceError
    from synth.engines.engine_names import ENGINES, kind_and_model, look_at

    try:
        look_at(name)
    except HeadraceError as error:
        return Finding("broken", "engine", str(error))
    return Finding("ok", "engine", f"{name}: {ENGINES[kind_and_model(name)[0]].checked}")


def engine_findings(name: str) -> list[Finding]:
    """Of an engine, which is started where it is one of our own, and asked for one token: whether it serves the model, and takes tools."""
    from storage.errors import HeadraceError
    from synth.engines.engine_names import EngineUse, engine_named

    with tempfile.TemporaryDirectory() as folder:
        try:
            with engine_named(name, EngineUse(Path(folder) / "engine.log", tools=True)):
                return [Finding("ok", "engine", f"{name} answers, and takes tools")]
        except HeadraceError as error:
            return [Finding("broken", "engine", str(error))]


def _python() -> Iterator[Finding]:
    fits = (3, 11) <= sys.version_info[:2] < (3, 14)
    yield Finding(
        "ok" if fits else "broken",
        "Python",
        f"{sys.version.split()[0]}{'' if fits else ': Headrace needs 3.11, 3.12 or 3.13'} ({sys.executable})",
    )


def _rooms() -> Iterator[Finding]:
    """The five packages must come from one place: a `train` or `storage` of somebody else's would be imported in silence."""
    places: dict[str, Path | None] = {}
    for room in ROOMS:
        spec = importlib.util.find_spec(room)
        places[room] = Path(spec.origin).resolve().parent.parent if spec is not None and spec.origin else None
    homes = set(places.values())
    if len(homes) == 1 and None not in homes:
        yield Finding("ok", "packages", f"{', '.join(ROOMS)} from {homes.pop()}")
        return
    here = Path(__file__).resolve().parents[2]
    strange = ", ".join(f"{room} from {place or 'nowhere'}" for room, place in places.items() if place != here)
    yield Finding(
        "broken", "packages", f"not all from {here}: {strange}; another package of that name is in the way, use a fresh environment"
    )


def _requirements() -> Iterator[Finding]:
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(line) for line in requires("headrace") or []]
    except PackageNotFoundError:
        yield Finding("broken", "headrace", "is not installed: pip install -e . (in the repository) or pip install headrace")
        return
    yield Finding("ok", "headrace", version("headrace"))
    core = [each for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
    yield from _compare("dependencies", core, "broken", "pip install --force-reinstall headrace, with the constraints of its repository")
    for extra, why in WORTH_KNOWING.items():
        theirs = [each for each in wanted if each not in core and each.marker is not None and each.marker.evaluate({"extra": extra})]
        yield from _compare(f"extra `{extra}`", theirs, "note", why)


def _compare(what: str, wanted: Sequence[Requirement], otherwise: Literal["note", "broken"], advice: str) -> Iterator[Finding]:
    wrong: list[str] = []
    right: list[str] = []
    for each in wanted:
        name, allowed = each.name, each.specifier
        try:
            found = version(name)
        except PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        (right if allowed.contains(found, prereleases=True) else wrong).append(
            f"{name} {found}" + ("" if allowed.contains(found, prereleases=True) else f" is not {allowed}")
        )
    if wrong:
        yield Finding(otherwise, what, f"{'; '.join(wrong)} ({advice})")
    else:
        yield Finding("ok", what, ", ".join(right))


def _disk() -> Iterator[Finding]:
    free_gib = shutil.disk_usage(Path.cwd()).free / 2**30
    enough = free_gib >= LEAST_FREE_GIB
    yield Finding(
        "ok" if enough else "note", "disk", f"{free_gib:.1f} GiB free here{'' if enough else f'; a sample run wants {LEAST_FREE_GIB:.0f}'}"
    )
    if not os.access(Path.cwd(), os.W_OK):
        yield Finding("note", "folder", f"{Path.cwd()} cannot be written; runs/ and .prefect/ would lie here")


def _threads() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = os.environ.get("OMP_NUM_THREADS")
    yield Finding(
        "ok",
        "cores",
        f"{cores}; OMP_NUM_THREADS is {asked or 'not set'} (training stages run on one thread each, so that equal runs give equal weights)",
    )


def _sandboxes() -> Iterator[Finding]:
    from synth.sandbox import available

    lacking = available()
    works = [name for name, missing in lacking.items() if not missing]
    others = "; ".join(f"{name} no: {missing}" for name, missing in lacking.items() if missing)
    if works:
        yield Finding("ok", "code sandbox", f"{works[0]} runs what the code tool is given{f' ({others})' if others else ''}")
    else:
        yield Finding("note", "code sandbox", f"none, so the code tool is not offered: {others}")


def _server() -> Iterator[Finding]:
    url = named_server()
    if url is None:
        yield Finding("ok", "Prefect", "PREFECT_API_URL is not set: each run starts a server of the project's own, on loopback")
    elif is_healthy(url, timeout_s=10.0):
        yield Finding("ok", "Prefect", f"the server at {url} answers")
    else:
        yield Finding("broken", "Prefect", f"PREFECT_API_URL is {url}, but no server answers there; start it, or unset the variable")
