"""`headrace doctor`: checks the installation, and with a configuration its store, engines and backends.

One idea: each check returns findings, each `ok`, `note` or `broken`; a broken one says what to do. Versions are compared with the
requirements of the installed package, so the command works from a wheel, without the repository. It changes nothing, and does not import
the heavy libraries that it checks.
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
EXTRAS = {
    "train": "training needs it: pip install 'headrace[train]'",
    "ray": "only to send work to a Ray cluster: pip install 'headrace[ray]'",
    "sandbox": "only to run the code tool in Docker: pip install 'headrace[sandbox]'",
}
"""Name of an extra -> its purpose and its command."""


@dataclass(frozen=True)
class Finding:
    state: Literal["ok", "note", "broken"]
    what: str
    detail: str


def findings() -> list[Finding]:
    """Findings about the installation."""
    return [*_python(), *_rooms(), *_requirements(), *_disk(), *_threads(), *_sandboxes(), *_server()]


def configured_findings(config: Config) -> list[Finding]:
    """Findings about a configuration: its store, its engines, and the needs of its stages."""
    engines = {*config.synthesize.roles.engines.values(), config.curate.ground.engine, config.curate.difficulty.engine} - {None}
    return [*_store(config), *map(_engine, sorted(map(str, engines))), *_backends(config)]


def _store(config: Config) -> list[Finding]:
    """Whether every committed part has its file with all its rows."""
    from storage.parts import rows_on_disk
    from storage.store import Store

    store = Store(config.store)
    valid = Finding("ok", "configuration", "every key is known and every value in range")
    if not store.exists():
        return [valid, Finding("note", "store", f"{config.store} does not exist yet; the first flow creates it")]
    parts = store.query("SELECT path, rows FROM parts ORDER BY path").rows()
    bad = [path for path, rows in parts if rows_on_disk(store.root / path) != rows]
    if bad:
        advice = "restore them from a copy, or begin a new store"
        problem = f"{len(bad)} of {len(parts)} parts of {config.store} are missing or damaged, first {bad[0]} ({advice})"
        return [valid, Finding("broken", "store", problem)]
    return [valid, Finding("ok", "store", f"{config.store}: {len(parts):,} parts, content hash {store.content_hash()[:16]}")]


def _backends(config: Config) -> Iterator[Finding]:
    """The needs of the stages' backends."""
    from flows.validation import stage_needs
    from storage.errors import HeadraceError

    for stages, need in stage_needs(config):
        detail = f"{need.requirement} ({', '.join(stages)})"
        try:
            if need.check is not None:
                need.check(0.0)
        except HeadraceError as error:
            yield Finding("broken", need.name, str(error))
        else:
            yield Finding("ok", need.name, detail) if need.check is not None else Finding("note", need.name, detail)


def _engine(name: str) -> Finding:
    """Whether an engine of the configuration is available. Starts nothing."""
    from storage.errors import HeadraceError
    from synth.engines.engine_names import ENGINES, check_engine, kind_and_model

    try:
        check_engine(name)
    except HeadraceError as error:
        return Finding("broken", "engine", str(error))
    return Finding("ok", "engine", f"{name}: {ENGINES[kind_and_model(name)[0]].checked}")


def engine_findings(name: str) -> list[Finding]:
    """Whether an engine serves its model and accepts tools. Starts the engine if it is a local one, and requests one token."""
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
    """Whether the five packages come from one folder: another installed package named `train` or `storage` could hide ours."""
    places: dict[str, Path | None] = {}
    for room in ROOMS:
        spec = importlib.util.find_spec(room)
        places[room] = Path(spec.origin).resolve().parent.parent if spec is not None and spec.origin else None
    here = Path(__file__).resolve().parents[2]
    if foreign := ", ".join(f"{room} from {place or 'nowhere'}" for room, place in places.items() if place != here):
        advice = "another package of that name is in the way, use a fresh environment"
        yield Finding("broken", "packages", f"not all from {here}: {foreign}; {advice}")
    else:
        yield Finding("ok", "packages", f"{', '.join(ROOMS)} from {here}")


def _requirements() -> Iterator[Finding]:
    from packaging.requirements import Requirement

    try:
        package_requirements = [Requirement(line) for line in requires("headrace") or []]
    except PackageNotFoundError:
        yield Finding("broken", "headrace", "is not installed: pip install -e . (in the repository) or pip install headrace")
        return
    yield Finding("ok", "headrace", version("headrace"))
    core = [each for each in package_requirements if each.marker is None or each.marker.evaluate({"extra": ""})]
    yield _compare("dependencies", core, "broken", "pip install --force-reinstall headrace, with the constraints of its repository")
    for extra, advice in EXTRAS.items():
        extras = [
            each for each in package_requirements if each not in core and each.marker is not None and each.marker.evaluate({"extra": extra})
        ]
        yield _compare(f"extra `{extra}`", extras, "note", advice)


def _compare(subject: str, requirements: Sequence[Requirement], state_if_unmet: Literal["note", "broken"], advice: str) -> Finding:
    """Whether the installed packages meet their requirements."""
    met: list[str] = []
    unmet: list[str] = []
    for each in requirements:
        try:
            installed = version(each.name)
        except PackageNotFoundError:
            unmet.append(f"{each.name} is missing")
            continue
        if each.specifier.contains(installed, prereleases=True):
            met.append(f"{each.name} {installed}")
        else:
            unmet.append(f"{each.name} {installed} is not {each.specifier}")
    return Finding(state_if_unmet, subject, f"{'; '.join(unmet)} ({advice})") if unmet else Finding("ok", subject, ", ".join(met))


def _disk() -> Iterator[Finding]:
    free_gib = shutil.disk_usage(Path.cwd()).free / 2**30
    if free_gib >= LEAST_FREE_GIB:
        yield Finding("ok", "disk", f"{free_gib:.1f} GiB free here")
    else:
        yield Finding("note", "disk", f"{free_gib:.1f} GiB free here; a sample run needs {LEAST_FREE_GIB:.0f}")
    if not os.access(Path.cwd(), os.W_OK):
        yield Finding("note", "folder", f"{Path.cwd()} is not writable; runs/ and .prefect/ are created there")


def _threads() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = f"OMP_NUM_THREADS is {os.environ.get('OMP_NUM_THREADS') or 'not set'}"
    yield Finding("ok", "cores", f"{cores}; {threads} (training stages run on one thread each, so that equal runs give equal weights)")


def _sandboxes() -> Iterator[Finding]:
    from synth.sandbox import available

    reasons = available()
    unusable = "; ".join(f"{name} does not work: {reason}" for name, reason in reasons.items() if reason)
    usable = next((name for name, reason in reasons.items() if not reason), None)
    if usable is not None:
        yield Finding("ok", "code sandbox", f"{usable} runs the programs of the code tool{f' ({unusable})' if unusable else ''}")
    else:
        yield Finding("note", "code sandbox", f"none, so the code tool is not offered: {unusable}")


def _server() -> Iterator[Finding]:
    url = named_server()
    if url is None:
        yield Finding("ok", "Prefect", "PREFECT_API_URL is not set: each run starts the project's own server, on loopback")
    elif is_healthy(url, timeout_s=10.0):
        yield Finding("ok", "Prefect", f"the server at {url} answers")
    else:
        yield Finding("broken", "Prefect", f"PREFECT_API_URL is {url}, but no server answers there; start it, or unset the variable")
