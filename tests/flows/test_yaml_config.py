"""A configuration file is read, or refused in one line that names the file, the line and the key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from flows.yaml_config import load
from storage.errors import BadInput


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Sft(_Strict):
    kind: Literal["sft"] = "sft"
    learning_rate: float = Field(1e-3, gt=0)


class Rl(_Strict):
    kind: Literal["rl"] = "rl"
    clip_high: float = 0.28


class Funnel(_Strict):
    keep: int = Field(100, ge=1)
    quotas: dict[str, int] = {}


class Whole(_Strict):
    name: str = "x"
    funnel: Funnel | None = None
    stages: list[Annotated[Sft | Rl, Field(discriminator="kind")]] = []


def refused(tmp_path: Path, text: str) -> str:
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as error:
        load(path, Whole)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_absent_keys_keep_their_defaults(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("name: 名\nfunnel: {keep: 7}\nstages:\n  - {kind: rl}\n", encoding="utf-8")
    config = load(path, Whole)
    assert (config.name, config.funnel, config.stages) == ("名", Funnel(keep=7), [Rl()])


@pytest.mark.parametrize("text", ["", "\n", "# nothing but a comment\n"])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=r"c\.yaml: the file is empty or has only comments"):
        load(path, Whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: a\nfunel: {}\n", "c.yaml:2: unknown key `funel`; did you mean `funnel`?"),
        ("funnel:\n  # how many\n  kep: 3\n", "c.yaml:3: unknown key `funnel.kep`; did you mean `keep`?"),
        (
            "stages:\n  - kind: sft\n  - kind: rl\n    clip_hihg: 1\n",
            "c.yaml:4: unknown key `stages.1.clip_hihg`; did you mean `clip_high`?",
        ),
        ("funnel:\n  zzzzzz: 3\n", "c.yaml:2: unknown key `funnel.zzzzzz`; valid here: keep, quotas"),
        ("funnel:\n  keep: many\n", "c.yaml:2: `funnel.keep`: must be a valid integer"),
        ("funnel:\n  keep: 0\n", "greater than or equal to 1, not 0"),
        ("stages:\n  - kind: dpo\n", "c.yaml:2: `stages.0`"),
        ("name: a\nname: b\n", "c.yaml:2: the key `name` is given twice"),
        ("name: [a\n", "c.yaml:2: not valid YAML"),
        ("- a\n", "c.yaml:1: a configuration is a mapping"),
        ("name: 2026-13-45\n", "c.yaml: not valid YAML: month must be in 1..12"),
        ("? [a, b]\n: c\n", "c.yaml:1: not valid YAML: found unhashable key"),
        ("name: &x [*x]\n", "c.yaml: nested too deeply, or it contains itself"),
        ("name: " + "[" * 3000, "c.yaml: nested too deeply, or it contains itself"),
    ],
)
def test_every_error_names_line_and_key(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused(tmp_path, text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "sample.yaml").write_text("name: a\n")
    with pytest.raises(BadInput, match=r"sampel\.yaml: no such configuration file; did you mean .*sample\.yaml"):
        load(tmp_path / "sampel.yaml", Whole)
    (tmp_path / "latin.yaml").write_bytes("name: é\n".encode("latin-1"))
    with pytest.raises(BadInput, match="cannot be read as UTF-8"):
        load(tmp_path / "latin.yaml", Whole)
