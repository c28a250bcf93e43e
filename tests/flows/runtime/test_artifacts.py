"""A flow writes the report at its end, unless another flow called it."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext

from flows.config import Config
from flows.runtime import artifacts
from flows.runtime.events import is_inside_a_flow
from storage.store import Store


@pytest.mark.parametrize("inside", [True, False])
def test_a_flow_that_another_flow_called_writes_no_report(inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a flow run with or without a parent, when its report is to be published, then only the outer one writes it."""
    written: list[Path] = []
    monkeypatch.setattr(artifacts, "write_report_page", lambda config: written.append(config.report))
    monkeypatch.setattr("prefect.artifacts.create_markdown_artifact", lambda *_, **__: None)
    run = FlowRun(flow_id=uuid4(), parent_task_run_id=uuid4() if inside else None)
    config = Config(store=tmp_path / "store")
    with FlowRunContext.model_construct(flow_run=run):
        assert is_inside_a_flow() == inside
        artifacts.publish_report(config)
    assert written == ([] if inside else [tmp_path / "report.html"])


def test_learning_curves_are_an_artifact_with_a_fixed_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[tuple[str, str]] = []
    monkeypatch.setattr("prefect.artifacts.create_markdown_artifact", lambda markdown, key, description: created.append((key, markdown)))
    for drawn in ("", "sft1 █▁"):  # of a store without a training, none
        monkeypatch.setattr(artifacts, "text_curves", lambda _, drawn=drawn: drawn)
        artifacts.publish_curves(Store(tmp_path / "store"))
    assert created == [("headrace-learning", "```text\nsft1 █▁\n```")]


def test_outside_of_any_flow_there_is_no_outer_one() -> None:
    assert not is_inside_a_flow()
