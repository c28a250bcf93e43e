"""The example engine of docs/extending.md: it answers, fails as an engine does, and is refused if it cannot serve."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from storage.errors import BadInput
from storage.records import Message
from synth.engines import engine_names
from synth.engines.base import ChatRequest, EngineFailure
from synth.engines.engine_names import ENGINES, EngineKind, EngineUse, check_engine, engine_named

DOCS = Path(__file__).parents[3] / "docs" / "extending.md"
HELLO = ChatRequest((Message(role="user", content="hello"),))


@pytest.fixture(autouse=True)
def _example(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = re.findall(r"^ +```python\n(.*?)^ +```$", DOCS.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    module = ModuleType("program")
    vars(module).update(vars(engine_names))
    for code in (code for code in codes if "ProgramEngine" in code):
        exec(compile(textwrap.dedent(code), str(DOCS), "exec", dont_inherit=True), vars(module))
    monkeypatch.setitem(ENGINES, "program", EngineKind(module._open_program, module._check_program, "is there"))


def program(folder: Path, script: str) -> str:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return f"program:{path}"


def test_the_example_answers_with_what_the_program_prints(tmp_path: Path) -> None:
    with engine_named(program(tmp_path, "grep -o hello"), EngineUse(tmp_path / "log")) as engine:
        assert [answer.message.content for answer in engine.chat([HELLO, HELLO])] == ["hello", "hello"]


def test_the_example_blames_itself_for_a_program_that_fails_or_takes_too_long(tmp_path: Path) -> None:
    for script in ("exit 3", "sleep 5"):
        with (
            engine_named(program(tmp_path, script), EngineUse(tmp_path / "log", timeout_s=0.2)) as engine,
            pytest.raises(EngineFailure, match="gave no answer"),
        ):
            engine.chat([HELLO])


def test_the_example_is_refused_where_there_is_no_program_or_tools_are_needed(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no program"):
        check_engine(f"program:{tmp_path}/nowhere")
    with pytest.raises(BadInput, match="accepts no tools"):
        check_engine(program(tmp_path, "cat"), tools=True)
