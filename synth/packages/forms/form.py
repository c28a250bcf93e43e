"""What an ecosystem's package is, as a record, and what all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from synth.packages.package_contents import Contents

TEMPLATES = Path(__file__).parents[1] / "templates"


@dataclass(frozen=True)
class Form:
    """An ecosystem.

    name: as `--for` takes it.
    requirement: the ecosystem's own package, with the versions that the export was written for.
    python: versions of Python that it runs on.
    files: contents -> path in the package -> text.
    commands: contents -> the commands that install and run a package, for its README.
    not_carried: what the package leaves out of what Headrace does, a sentence each.
    """

    name: str
    requirement: str
    python: str
    files: Callable[[Contents], Mapping[str, str]]
    commands: Callable[[Contents], str]
    not_carried: tuple[str, ...]


def template(path: str) -> str:
    """The text of a template, by its path under `templates/`."""
    return (TEMPLATES / path).read_text(encoding="utf-8")


def headrace_requirement() -> str:
    """`headrace==VERSION`, the one that writes the package."""
    try:
        return f"headrace=={version('headrace')}"
    except PackageNotFoundError:
        return "headrace"


def pyproject(contents: Contents, form_requirement: str, python: str, build: str) -> str:
    """A pyproject.toml that depends on Headrace and the ecosystem. build: what follows the table `project`."""
    dashed = contents.name.replace("_", "-")
    return f"""[project]
name = "{dashed}"
version = "0.1.0"
description = "Tool-use tasks made by Headrace"
readme = "README.md"
requires-python = "{python}"
dependencies = ["{headrace_requirement()}", "{form_requirement}"]

{build}"""
