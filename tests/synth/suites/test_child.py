"""A suite's child process: requests and answers, and what its caller learns when it raises, ends or hangs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from storage.errors import BadInput
from synth.suites import child as child_module
from synth.suites.child import Child, SuiteFailure, environment_of

SCRIPTED_PROGRAM = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "exit": sys.exit(3)
    if request["op"] == "hang": time.sleep(60)
    answer = {"error": "KeyError: 7"} if request["op"] == "raise" else {"result": [request, os.getpid(), sorted(os.environ)]}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a suite whose environment has this Python, and whose program is scripted: it says what it was asked."""
    python = tmp_path / ".venv-suite-tau2" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "program.py").write_text(SCRIPTED_PROGRAM)
    monkeypatch.setattr(child_module, "PROGRAM", tmp_path / "program.py")
    monkeypatch.setenv("HEADRACE_SUITES", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    return "tau2-retail"


def test_a_request_is_answered_without_the_callers_secrets(suite: str) -> None:
    with Child(suite) as child:
        request, first, variables = child.request("call", handle=1, arguments={"a": "é"})
        assert request == {"op": "call", "handle": 1, "arguments": {"a": "é"}}
        assert "OPENAI_API_KEY" not in variables and "PATH" in variables
        assert child.request("state")[1] == first, "one process answers all requests"


def test_what_the_program_raises_is_told_and_it_goes_on(suite: str) -> None:
    with Child(suite) as child:
        first = child.request("state")[1]
        with pytest.raises(SuiteFailure, match="suite tau2-retail, raise: KeyError: 7"):
            child.request("raise")
        assert child.request("state")[1] == first


@pytest.mark.parametrize(("op", "says"), [("exit", "ended at exit"), ("hang", "gave no answer in 0.2 s at hang")])
def test_a_program_that_ends_or_hangs_is_replaced(suite: str, op: str, says: str) -> None:
    with Child(suite, call_s=0.2) as child:
        first = child.request("state")[1]
        with pytest.raises(SuiteFailure, match=says):
            child.request(op)
        assert child.request("state")[1] != first


def test_a_suite_that_is_not_installed_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SUITES", str(tmp_path))
    with pytest.raises(BadInput, match=r"suite agentdojo is not here: `make suites` installs it into \.venv-suite-agentdojo"):
        environment_of("agentdojo")
