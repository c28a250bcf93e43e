"""`headrace package`: tasks, world and verifier as another ecosystem's package, and the check of such a package."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import validation
from flows.cli.shared import ConfigFile, Debug, ReadStore
from flows.cli.terminal import handle_errors, print_text
from storage.errors import BadInput

if TYPE_CHECKING:
    from synth.packages.package_contents import Contents


class Ecosystem(StrEnum):
    verifiers = "verifiers"
    inspect = "inspect"
    openenv = "openenv"
    harbor = "harbor"
    nemo_gym = "nemo-gym"


Release = Annotated[
    str | None, typer.Argument(metavar="[RELEASE]", help="Release id or name, as of `export`. Default: all synthesised conversations.")
]
For = Annotated[Ecosystem | None, typer.Option("--for", help="Ecosystem to write for.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="Folder of the package; its name is the package's.")]
DrawnWorlds = Annotated[
    list[str] | None,
    typer.Option("--world", "-w", metavar="NAME|FILE", help="Draw tasks in this world (of --store) instead; may be repeated."),
]
Count = Annotated[int | None, typer.Option("--n", min=1, help="Tasks to draw in each --world. Default: 50.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the draw in each --world. Default: 0.")]
Licence = Annotated[
    list[str] | None,
    typer.Option("--licence", metavar="FILE=LICENCE", help="Licence of a file of raw queries, for the card; may be repeated."),
]
Check = Annotated[
    Path | None,
    typer.Option("--check", metavar="DIR", help="Check a written package by its ecosystem's own tool; writes nothing there."),
]
Programs = Annotated[
    Path | None,
    typer.Option("--programs", metavar="DIR", help="With --check: folder of the ecosystem's commands (default: .venv-package-NAME/bin)."),
]


def package(
    release: Release = None,
    ecosystem: For = None,
    folder: Out = None,
    world: DrawnWorlds = None,
    count: Count = None,
    seed: Seed = None,
    licence: Licence = None,
    check: Check = None,
    programs: Programs = None,
    config: ConfigFile = None,
    store: ReadStore = None,
    debug: Debug = False,
) -> None:
    """Write tasks, world and verifier as a package of verifiers, Inspect, OpenEnv, Harbor or NeMo Gym; or check such a package.

    The tasks are those of a release, or are drawn in a world. Those that are held out are in files of their own. With --check, the
    ecosystem's own tool runs each task twice, without a model: the expert must score 1, an idle policy 0.

    Examples:

      headrace package --for verifiers --world retail --world banking --n 50 --out shop_tasks/

      headrace package --for harbor --store runs/mine/store --out harbor_tasks/

      headrace package rl --for inspect --store runs/sample/store --out inspect_tasks/

      headrace package --check shop_tasks/
    """
    with handle_errors(debug):
        of_release = {"the release": release, "--licence": licence}
        of_draw = {"--world": world, "--n": count, "--seed": seed}
        if check is not None:
            writing = {"--for": ecosystem, "--out": folder, **of_release, **of_draw, "--config": config, "--store": store}
            _refuse(writing, "is for writing a package; leave it out, or leave out --check")
            _check(check, programs)
            return
        _refuse({"--programs": programs}, "goes with --check DIR")
        if ecosystem is None or folder is None:
            raise BadInput("say for which ecosystem and where: --for verifiers --out DIR; or --check DIR")
        from synth.packages.write_package import module_name

        name = module_name(folder)
        if world:
            _refuse(of_release, "does not go with --world, which draws tasks; leave out one of them")
            contents = _draw(world, 50 if count is None else count, name, seed or 0, config, store)
        else:
            _refuse(of_draw, "is for tasks that are drawn; name a --world, or leave it out")
            contents = _select(release, name, licence or [], config, store)
        _write(contents, ecosystem.value, folder)


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Raises BadInput: one of the options is given."""
    for name, value in options.items():
        if value not in (None, []):
            raise BadInput(f"{name} {why}")


def _write(contents: Contents, ecosystem: str, folder: Path) -> None:
    from synth.packages.forms.forms_by_name import FORMS
    from synth.packages.write_package import write_package

    written = write_package(contents, FORMS[ecosystem], folder)
    counts = ", ".join(f"{split} {len(tasks)}" for split, tasks in contents.tasks.items())
    print_text(f"wrote {written} for {ecosystem}: {counts} (tasks); README.md there has the commands")
    for reason, number in contents.left_out.items():
        print_text(f"left out: {number} tasks {reason}", style="yellow")
    print_text(f"check it: headrace package --check {folder}")


def _draw(worlds: list[str], count: int, name: str, seed: int, config: Path | None, store: Path | None) -> Contents:
    from synth.packages.task_sources import of_worlds
    from synth.worlds.stored_worlds import register_stored

    if config is not None or store is not None:
        register_stored(validation.open_store(config, store))
    return of_worlds([validation.resolve_world(world) for world in worlds], count, name, seed=seed)


def _select(release: str | None, name: str, licence: list[str], config: Path | None, store: Path | None) -> Contents:
    from synth.packages.task_sources import of_release

    opened = validation.open_store(config, store)
    release_id = validation.resolve_release(opened, release)
    return of_release(opened, release_id, name, validation.parse_licences(licence, opened, release_id))


def _check(folder: Path, programs: Path | None) -> None:
    from synth.packages.checks.check_package import check_package

    scratch = Path(tempfile.mkdtemp(prefix="headrace-package-"))
    report = check_package(folder, scratch, programs=programs)
    number = len(report.package.task_ids)
    print_text(
        f"{report.package.form}: {report.tool}; {number} tasks in {report.seconds:.0f} s: the expert scores "
        f"{sum(report.expert.values()):g} of {number}, an idle policy {sum(report.idle.values()):g}"
    )
    if report.wrong:
        print_text(f"wrong: {', '.join(report.wrong[:5])}{' ...' if len(report.wrong) > 5 else ''}; logs: {scratch}", style="red")
        raise typer.Exit(1)
