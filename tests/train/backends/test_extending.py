"""The backend of docs/extending.md, as it stands there: it trains, is found again where its launcher is gone, and can be cancelled."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.train.backends.small_stages import SFT, released, spec_of
from train.backends.base import Backend, StageFailed, run_stage
from train.backends.named import BACKENDS
from train.config import CascadeConfig

DOCS = Path(__file__).parents[3] / "docs" / "extending.md"


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend[Any]:
    codes = re.findall(r"^ +```python\n(.*?)^ +```$", DOCS.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (code,) = [code for code in codes if "class DetachedBackend" in code]
    module = ModuleType("detached")
    exec(compile(textwrap.dedent(code), str(DOCS), "exec", dont_inherit=True), vars(module))
    monkeypatch.setitem(BACKENDS, "detached", module.DetachedBackend)
    config = CascadeConfig.model_validate({"stages": [{"name": "rl", "backend": "detached"}]})
    return config.backend_of(config.stage("rl"))


@pytest.mark.slow
def test_the_example_trains_and_a_second_launcher_finds_what_the_first_has_started(backend: Backend[Any], tmp_path: Path) -> None:
    folder = tmp_path / "store" / "models" / "stage-1"
    spec = spec_of(*released(tmp_path / "store"), folder)
    folder.mkdir(parents=True)
    first = backend.launch(spec, folder)
    second = type(backend)().launch(spec, folder)
    assert first is not None and second == first
    reports: list[int] = []
    result = run_stage(backend, spec, folder, lambda done, *_: reports.append(done))
    assert result["metrics"]["steps"] == SFT.max_steps and (folder / "model" / "config.json").exists()
    assert reports == sorted(reports)


def test_the_example_ends_a_stage_that_is_cancelled_and_says_so_of_one_without_a_result(backend: Backend[Any], tmp_path: Path) -> None:
    folder = tmp_path / "store" / "models" / "stage-1"
    spec = spec_of(*released(tmp_path / "store"), folder)
    folder.mkdir(parents=True)
    handle = backend.launch(spec, folder)
    backend.cancel(handle)
    with pytest.raises(StageFailed, match=r"stage sft1 ended without a result; .*log\.txt says why"):
        backend.follow(handle)
