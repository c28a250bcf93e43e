"""`run_python`: a tool that computes, which any world or cluster can offer beside its own (definition P10).

A box has an interpreter that is started in advance. A snippet runs in a fork of it, under all limits of the box: no network, 512 MB, one
CPU, an empty folder of its own. Snippets share nothing. The observation holds no timing and no address, random numbers start from one
seed and sets are ordered alike everywhere, so a deterministic snippet always gives the same bytes, on either provider with one Python.

Where no provider works (`synth.sandbox.pick()` is None) the tool is not offered. Worlds share one tool a process: `run_python`.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from storage.records import CODE_TOOL, JSON, Tool, canonical_json, parse_arguments
from synth.sandbox import Limits, Provider, Result, Sandbox, SandboxError, available, pick
from synth.sandbox.snippet import ALLOWED
from synth.worlds.arguments import BadArgument, compile_checker
from synth.worlds.base import Observation
from synth.worlds.tool_cache import ToolCache

VERSION = 3
"""Bumped by hand when the same snippet gives another observation."""
CODE_CHARS, TIMEOUT_S, MOST_TIMEOUT_S = 8_000, 5, 10
STDOUT_CHARS, STDERR_CHARS, REPR_CHARS = 4_000, 2_000, 2_000
CUT = "\n... (cut)"
TIMED_OUT, KILLED = 124, 137
SHARED_CACHE_BYTES = 64 * 2**20
LIMITS = Limits(memory_bytes=512 * 2**20, cpus=1.0, output_bytes=4 * STDOUT_CHARS)

TOOL = Tool(
    name=CODE_TOOL,
    description=(
        "Runs a Python snippet and returns what it prints and the value of its last line. No network; nothing is kept between calls. "
        f"These modules can be imported: {', '.join(ALLOWED)}."
    ),
    parameters={
        "type": "object",
        "properties": {
            "code": {"type": "string", "maxLength": CODE_CHARS, "description": "Python source."},
            "timeout_s": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_TIMEOUT_S,
                "default": TIMEOUT_S,
                "description": "CPU seconds that the snippet may take.",
            },
        },
        "required": ["code"],
        "additionalProperties": False,
    },
    output={
        "type": "object",
        "properties": {
            "stdout": {"type": "string"},
            "stderr": {"type": "string"},
            "exit_code": {"type": "integer"},
            "result_repr": {"type": ["string", "null"]},
        },
    },
    server="code",
    domain="code",
)

_check_arguments = compile_checker(TOOL.parameters, allows_blank=False)
_ADDRESS = re.compile(r"(?<= at )0x[0-9a-f]+")


class CodeTool:
    """Safe for several threads, one call at a time; several tools on one sandbox run side by side.

    cache: keeps the observations of snippets, for good, and those of limits that ran out for a while.
    """

    tool = TOOL

    def __init__(self, sandbox: Sandbox, cache: ToolCache | None = None) -> None:
        self._sandbox, self._cache = sandbox, cache
        self._lock = threading.Lock()

    def call(self, arguments: str | Mapping[str, JSON]) -> Observation:
        """Runs the snippet of these arguments (JSON text or an object). Arguments that the schema refuses, limits that ran out, and a
        snippet that ended its box and the fresh one after it are error observations; a snippet that raises is not: it shows its traceback.

        Raises:
            SandboxError: no box could be started.
        """
        parsed = parse_arguments(arguments) if isinstance(arguments, str) else arguments
        if not isinstance(parsed, Mapping):
            return _error("arguments are not a JSON object")
        try:
            request = _check_arguments(parsed)
        except BadArgument as problem:
            return _error(str(problem))
        if "\0" in request["code"]:
            return _error("code must not hold the character U+0000")
        if self._cache is None:
            return self._run(request)
        return self._cache.call(TOOL, VERSION, request, lambda: self._run(request))

    def _run(self, request: Mapping[str, JSON]) -> Observation:
        timeout_s = request["timeout_s"]
        # The CPU time decides, which is the same on a busy machine; the clock only ends what waits for ever.
        limits = replace(LIMITS, cpu_s=timeout_s, wall_s=3.0 * timeout_s)
        with self._lock:
            return observation(self._sandbox.run_snippet(request["code"], limits=limits), timeout_s)


# ---- the tool of this process -----------------------------------------------------------------------------------------------------


@cache
def _provider() -> Provider | None:
    return pick()


@cache
def missing() -> str:
    """Why this machine runs no code; empty where it does. Tries the providers once a process."""
    if _provider() is not None:
        return ""
    return "; ".join(f"{name}: {lacks}" for name, lacks in available().items())


@cache
def _tool_of(process: int) -> CodeTool:
    """One sandbox a process: a fork opens its own."""
    provider = _provider()
    if provider is None:
        raise SandboxError(f"no sandbox works on this machine, so {CODE_TOOL} cannot be called ({missing()})")
    return CodeTool(Sandbox(provider, LIMITS), ToolCache(max_bytes=SHARED_CACHE_BYTES))


def run_python(arguments: str | Mapping[str, JSON]) -> Observation:
    """Calls the tool of this process, which opens at the first call, keeps its observations, and closes with the process.

    Raises:
        SandboxError: no provider works here, or the sandbox failed: never the caller's fault.
    """
    return _tool_of(os.getpid()).call(arguments)


# ---- its observations ------------------------------------------------------------------------------------------------------


def observation(result: Result, timeout_s: int) -> Observation:
    """What the tool shows of a finished snippet."""
    if result.ended_box:
        return _error("the snippet ended the box that it ran in", exit_code=KILLED)
    if result.timed_out:
        return _error(f"the snippet took more than {timeout_s} s", exit_code=TIMED_OUT)
    if result.exit_code < 0:
        return _error("the snippet was ended: it took more memory or processes than it may", exit_code=KILLED)
    content = {
        "stdout": _shorten_output(result.stdout, STDOUT_CHARS, result.stdout_truncated),
        "stderr": _shorten_output(result.stderr, STDERR_CHARS, result.stderr_truncated),
        "exit_code": result.exit_code,
        "result_repr": _shorten_output(result.value, REPR_CHARS, is_cut=False) if result.value else None,
    }
    return Observation(canonical_json(content))


def _shorten_output(text: str, most: int, is_cut: bool) -> str:
    text = _ADDRESS.sub("0x0", text)
    return text[: most - len(CUT)] + CUT if is_cut or len(text) > most else text


def _error(message: str, **more: JSON) -> Observation:
    return Observation(canonical_json({"error": message, **more}), is_error=True)
