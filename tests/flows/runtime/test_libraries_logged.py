"""Warnings of libraries are in the log of the flow run, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

from flows.runtime.server import LIBRARIES_LOGGED, client_environment
from tests.waiting import eventually

RUN = """
import logging, threading
from prefect import flow
from prefect.runtime import flow_run
from flows.runtime.run_flow import flush_to_server

@flow
def with_libraries():
    for name in ("transformers.generation", "ray.data", "s3fs"):
        logging.getLogger(name).warning("%s warns", name)
        logging.getLogger(name).info("%s informs", name)
    thread = threading.Thread(target=lambda: logging.getLogger("ray").warning("outside of the run"))
    thread.start()
    thread.join()
    print(flow_run.get_id())

with_libraries()
flush_to_server()
"""


@pytest.mark.server
def test_libraries_warn_in_the_log_of_the_run(prefect_server: str, tmp_path: Path) -> None:
    environment = os.environ | client_environment(tmp_path, prefect_server) | {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL"}
    done = subprocess.run([sys.executable, "-P", "-c", RUN], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    filter_ = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[done.stdout.strip()]))  # type: ignore[list-item]
    with get_client(sync_client=True) as client:

        def logged() -> set[str]:
            return {log.message for log in client.read_logs(filter_) if not log.name.startswith("prefect")}

        assert eventually(lambda: logged() == {"transformers.generation warns", "ray.data warns", "s3fs warns"}, 60), logged()


def test_workers_on_another_server_have_the_same_settings() -> None:
    environment = yaml.safe_load((Path(__file__).parents[3] / "prefect.yaml").read_text())["definitions"]["worker"]["job_variables"]["env"]
    assert LIBRARIES_LOGGED.items() <= environment.items()


def test_the_users_own_choice_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_LOGGING_EXTRA_LOGGERS", "httpx")
    assert client_environment(tmp_path, "http://h/api")["PREFECT_LOGGING_EXTRA_LOGGERS"] == "httpx"
