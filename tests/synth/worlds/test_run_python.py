"""`run_python` on both providers: what it returns, what it refuses, and that nothing passes from one snippet to the next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.sandbox import Provider, Sandbox, SandboxError
from synth.sandbox.snippet import ALLOWED
from synth.worlds.run_python import CODE_CHARS, LIMITS, STDOUT_CHARS, TOOL, CodeTool
from synth.worlds.tool_cache import ToolCache

pytestmark = pytest.mark.docker

ENDS_ITS_BOX = """
import random
resource = random.__builtins__['__import__']('resource')
resource.prlimit(1, resource.RLIMIT_NOFILE, (1, 1))
"""


@pytest.fixture(scope="module")
def sandbox(provider: Provider) -> Iterator[Sandbox]:
    with Sandbox(provider, LIMITS) as made:
        yield made


@pytest.fixture(scope="module")
def tool(sandbox: Sandbox) -> CodeTool:
    return CodeTool(sandbox)


def ran(tool: CodeTool, code: str, **more: Any) -> dict[str, Any]:
    """The content of an observation that is no error."""
    observation = tool.call({"code": code, **more})
    assert not observation.is_error, observation.content
    found: dict[str, Any] = json.loads(observation.content)
    return found


@pytest.mark.slow
def test_a_snippet_gives_what_it_prints_and_the_value_of_its_last_line(tool: CodeTool) -> None:
    assert ran(tool, "prices = [3, 4, 5]\nprint(sum(prices))\nmax(prices)") == {
        "stdout": "12\n",
        "stderr": "",
        "exit_code": 0,
        "result_repr": "5",
    }
    assert ran(tool, "x = 1")["result_repr"] is None


def test_arguments_may_be_json_text(tool: CodeTool) -> None:
    assert json.loads(tool.call('{"code": "6 * 7", "timeout_s": 2}').content)["result_repr"] == "42"


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=20))
@settings(max_examples=15, deadline=None)
def test_it_computes_what_python_computes(tool: CodeTool, values: list[int]) -> None:
    found = ran(tool, f"import statistics\n(sorted({values}), statistics.median({values}))")

    middle = sorted(values)
    half = len(values) // 2
    median = middle[half] if len(values) % 2 else (middle[half - 1] + middle[half]) / 2
    assert found["result_repr"] == repr((middle, median))


def test_an_error_of_the_snippet_is_its_traceback_and_nothing_of_ours(tool: CodeTool) -> None:
    found = ran(tool, "def f(x):\n    return 1 / x\nf(0)")

    assert found["exit_code"] == 1
    assert found["stderr"].splitlines()[0] == "Traceback (most recent call last):"
    assert found["stderr"].splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert found["stderr"].count('File "') == found["stderr"].count('File "<snippet>"') == 2
    assert ran(tool, "x =")["stderr"].endswith("SyntaxError: invalid syntax\n")
    assert ran(tool, "import statistics\nstatistics.mean([])")["stderr"].count('File "') == 1


@pytest.mark.parametrize("module", ALLOWED)
def test_every_module_of_the_list_can_be_imported(tool: CodeTool, module: str) -> None:
    assert ran(tool, f"import {module}\n{module}.__name__")["result_repr"] == repr(module)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("from datetime import datetime\ndatetime.strptime('2 March 2026', '%d %B %Y').date().isoformat()", "'2026-03-02'"),
        ("import datetime\ndatetime.date(2026, 3, 2).strftime('%A')", "'Monday'"),
        ("import datetime\nf'{datetime.datetime(2026, 3, 2, 9, 30):%H:%M}'", "'09:30'"),
        ("import datetime\n(datetime.date.today() - datetime.date(2026, 1, 1)).days >= 0 and datetime.datetime.now().year > 2000", "True"),
        ("import datetime\ndatetime.date.fromtimestamp(0).year", "1970"),
        ("from __future__ import annotations\ndef f(x: Unknown) -> int:\n    return x\nf(3)", "3"),
        ("def f(x: 3 + 4): pass\nf.__annotations__", "{'x': 7}"),
        ("import json, decimal\njson.dumps({'a': float(decimal.Decimal('1.10'))})", "'{\"a\": 1.1}'"),
        ("import statistics\nround(statistics.NormalDist(0, 1).inv_cdf(0.975), 2)", "1.96"),
        ("from collections import Counter, namedtuple\nnamedtuple('P', 'x y')(1, 2).y + Counter('aab')['a']", "4"),
        ("from string import Template\nTemplate('$x').substitute(x='{:,}'.format(12500))", "'12,500'"),
        ("eval(r\"'\\N{EM DASH}'\") + 'é'.encode('ascii', 'namereplace').decode()", r"'—\\N{LATIN SMALL LETTER E WITH ACUTE}'"),
        ("divmod(10**30_000, 10**10_000) == (10**20_000, 0)", "True"),
        ("print('\\d' is None)\nimport re\nre.findall(r'\\d+', 'a1b22')", "['1', '22']"),
    ],
)
def test_programs_that_people_write_run(tool: CodeTool, code: str, value: str) -> None:
    found = ran(tool, code)

    assert (found["result_repr"], found["exit_code"]) == (value, 0), found["stderr"]


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "import time",
        "from subprocess import run",
        "import importlib",
        "__import__('socket')",
        "__import__('os', None, None, ['path'])",
        "exec('import sys')",
    ],
)
def test_no_other_module_can(tool: CodeTool, code: str) -> None:
    found = ran(tool, code)

    assert found["exit_code"] == 1
    assert "is not allowed here; these are: math, statistics" in found["stderr"]


def test_nothing_passes_from_one_snippet_to_the_next(tool: CodeTool) -> None:
    ran(tool, "import math\nmath.pi = 3\nopen('f', 'w').write('x')\nprint.__self__.len = None")

    assert ran(tool, "import math\n(round(math.pi, 2), len([1]))")["result_repr"] == "(3.14, 1)"
    assert "FileNotFoundError" in ran(tool, "open('f')")["stderr"]


def test_the_same_snippet_gives_the_same_bytes_in_every_box(provider: Provider, tool: CodeTool) -> None:
    code = "import random\nprint({f'w{n}' for n in range(20)}, random.random(), object())\nhash('a')"
    with Sandbox(provider, LIMITS) as other:
        assert CodeTool(other).call({"code": code}) == tool.call({"code": code}) == tool.call({"code": code})


@pytest.mark.parametrize(
    ("code", "timeout_s", "exit_code"),
    [("while True: pass", 1, 124), ("kept = [b'x' * 2**20 for n in range(700)]", 10, 137)],
)
def test_limits_that_run_out_are_an_error_observation(tool: CodeTool, code: str, timeout_s: int, exit_code: int) -> None:
    observation = tool.call({"code": code, "timeout_s": timeout_s})

    assert observation.is_error
    assert json.loads(observation.content)["exit_code"] == exit_code


def test_long_output_is_cut(tool: CodeTool) -> None:
    found = ran(tool, "import math\nprint('x' * 10_000)\n'y' * 10_000")

    assert len(found["stdout"]) == STDOUT_CHARS
    assert len(found["result_repr"]) == 2_000
    assert found["stdout"].endswith("\n... (cut)")


def test_nothing_that_it_shows_deceives_a_reader(tool: CodeTool) -> None:
    shown = "\\x1b[2J\\u202egnp.exe" + "\\u0301" * 40
    found = ran(tool, f"class A:\n    def __repr__(self): return '{shown}'\nprint(A())\nA()")

    assert found["result_repr"] == found["stdout"].removesuffix("\n") == "\ufffd[2J\ufffdgnp.exe" + "\u0301" * 8


@pytest.mark.parametrize(
    "arguments",
    [
        "no json",
        "[]",
        {},
        {"code": ""},
        {"code": 1},
        {"code": "1" * (CODE_CHARS + 1)},
        {"code": "1", "timeout_s": 11},
        {"code": "1", "timeout_s": True},
        {"code": "1", "more": 1},
        {"code": "'\0'"},
        {"code": "'\ud800'"},
    ],
)
def test_bad_arguments_are_an_error_observation(tool: CodeTool, arguments: Any) -> None:
    observation = tool.call(arguments)

    assert observation.is_error
    assert json.loads(observation.content)["error"]


def test_several_threads_may_call(tool: CodeTool) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda n: ran(tool, f"{n} * 2")["result_repr"], range(20)))

    assert found == [str(n * 2) for n in range(20)]


@pytest.mark.parametrize("first", ["1", None])
def test_a_snippet_whose_box_died_runs_again_in_another(provider: Provider, first: str | None) -> None:
    """Whether an earlier snippet ran in that box or not."""
    with Sandbox(provider, LIMITS) as sandbox:
        tool = CodeTool(sandbox)
        if first is None:
            sandbox.start().close()
        else:
            ran(tool, first)
        (box,) = sandbox._waiting
        box.close()

        assert ran(tool, "2")["result_repr"] == "2"


def test_a_runner_that_cannot_be_loaded_is_our_failure_and_keeps_the_boxes(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.sandbox.sandbox.RUNNER", b"raise OSError")
    with Sandbox(provider, LIMITS) as sandbox:
        with pytest.raises(SandboxError, match="could not load the runner"):
            CodeTool(sandbox).call({"code": "1"})

        assert sandbox._boxes == set(sandbox._waiting)


def test_a_box_that_dies_before_the_snippet_runs_is_our_failure(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.sandbox.sandbox.RUNNER", b"import os\nos._exit(1)")
    with Sandbox(provider, LIMITS) as sandbox:
        with pytest.raises(SandboxError, match="died before the snippet ran"):
            CodeTool(sandbox).call({"code": "1"})

        assert not sandbox._boxes


def test_a_snippet_that_ends_every_box_has_failed_itself(provider: Provider) -> None:
    """One protection is off, so that a snippet can."""
    with Sandbox(provider, LIMITS, without=frozenset({"seccomp"})) as sandbox:
        tool = CodeTool(sandbox)

        ended = tool.call({"code": ENDS_ITS_BOX})

        assert ended.is_error
        assert json.loads(ended.content) == {"error": "the snippet ended the box that it ran in", "exit_code": 137}
        assert ran(tool, "3")["result_repr"] == "3"


def test_a_closed_sandbox_is_our_failure(provider: Provider) -> None:
    with Sandbox(provider, LIMITS) as sandbox:
        tool = CodeTool(sandbox)
        tool.call({"code": "1"})

    with pytest.raises(SandboxError, match="closed"):
        tool.call({"code": "2"})


def test_a_cache_saves_snippets_that_ran_before(sandbox: Sandbox) -> None:
    cache = ToolCache()
    tool = CodeTool(sandbox, cache)

    first, again, default = tool.call({"code": "1 + 1"}), tool.call({"code": "1 + 1"}), tool.call({"code": "1 + 1", "timeout_s": 5})

    assert first == again == default
    assert (cache.report().misses, cache.report().hits) == (1, 2)


def test_the_schema_says_what_is_checked() -> None:
    properties = TOOL.parameters["properties"]

    assert properties["code"]["maxLength"] == 8_000
    assert (properties["timeout_s"]["minimum"], properties["timeout_s"]["maximum"], properties["timeout_s"]["default"]) == (1, 10, 5)
    assert not TOOL.changes_state
