"""Writes a package: the ecosystem's files, a card with origin and licence, checksums; the folder appears whole or not at all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from storage.releases.dataset_card import markdown_table
from storage.releases.export_folder import write_export
from synth.packages.forms.form import Form, headrace_requirement
from synth.packages.package_contents import Contents


def module_name(folder: Path) -> str:
    """The name of a package in this folder, as a Python module may have it."""
    name = re.sub(r"\W+", "_", folder.resolve().name.lower(), flags=re.ASCII).strip("_")
    return name if name and not name[0].isdigit() else f"tasks_{name}".rstrip("_")


def write_package(contents: Contents, form: Form, out_dir: Path) -> Path:
    """Writes a package into folder `out_dir` and returns it. An earlier one there is replaced; any other content is not touched.

    Raises:
        BadInput: `out_dir` holds something else, or cannot be made.
        HeadraceError: the disk is full.
    """
    files = form.files(contents)

    def write_files(folder: Path) -> list[str]:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if path.suffix == ".sh":
                path.chmod(0o755)
        return list(files)

    counts = {split: len(tasks) for split, tasks in contents.tasks.items()}
    described = {"package_for": form.name, "name": contents.name, "tasks": counts, "left_out": dict(contents.left_out)}
    return write_export(out_dir, f"writing a package for {form.name}", described, write_files, lambda _: card(contents, form))


def card(contents: Contents, form: Form) -> str:
    """The package's README: how it is run, what it holds, where it comes from, what it may be used for."""
    rows = [
        (split, world, count, ", ".join(sorted({task.language for task in tasks if task.world == world})))
        for split, tasks in contents.tasks.items()
        for world, count in sorted(Counter(task.world for task in tasks).items())
    ]
    left_out = "".join(f"- {count} tasks {reason}\n" for reason, count in contents.left_out.items())
    sections: Mapping[str, str] = {
        "Run it": f"Python {form.python}, `{form.requirement}` and `{headrace_requirement()}` (the world and the verdict; where no index "
        f"has it, install its wheel first).\n\n```sh\n{form.commands(contents)}\n```",
        "Tasks": markdown_table(("split", "world", "tasks", "languages"), rows)
        + "\n\nTasks of `eval_in` and `eval_out` are held out: do not train on them."
        + (f"\n\nLeft out:\n\n{left_out}" if left_out else ""),
        "The reward": "1 if all checks of the verdict hold, else 0. The calls are made again in a fresh world, and the end state, the "
        "facts and the refusals are compared with what the task demands. The expert plan of every task scores 1; doing nothing scores 0.",
        "Not carried over": "\n".join(f"- {line}" for line in form.not_carried),
        "Origin": contents.origin,
        "Licence": "\n".join(contents.licences),
    }
    body = "\n\n".join(f"## {title}\n\n{text.strip()}" for title, text in sections.items())
    opening = f"Tool-use tasks with an executable world and a verifier, made by Headrace, as a package for {form.name}."
    return f"# {contents.name}\n\n{opening}\n\n{body}\n"
