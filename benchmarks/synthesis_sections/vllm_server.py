"""A real vLLM server with a tiny model that knows a few calls by heart (`tests/synth/tiny_caller.py`): its calls, and what outlives it.

`vllm_tool_call_share`: of sampled requests for what the model knows, each with a seed of its own, through the server's tool parser with
tool choice `auto`, the share that is answered with one call that is well formed: of a tool on offer, with arguments that are JSON and meet
its schema. `vllm_children_left`: processes that the server has started and that are left LEFT_AFTER_S after the process that asked for it
was killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jsonschema import Draft202012Validator

from benchmarks.harness import ROOT, Deadline, Figures, Section, fail

if TYPE_CHECKING:
    from storage.records import Message, Tool
    from synth.engines.vllm import VLLMConfig

WORK = ROOT / ".cache" / "bench" / "synthesis" / "vllm"
REQUESTS = 200
MAX_MODEL_LEN = 512
LEFT_AFTER_S = 30.0
LEAST_BEGUN = 3
"""Processes that there must have been: who asked, who watches, the server. With fewer, none left would say nothing."""
MOST_LOSS = 0.05


def sections() -> list[Section]:
    return [
        Section("vllm: tool calls", ("vllm_tool_call_share",), measure_calls, minutes=6),
        Section("vllm: what is left", ("vllm_children_left",), measure_left, minutes=6),
    ]


def main() -> int:
    """`python -m benchmarks.synthesis_sections.vllm_server`: serves until it is killed."""
    from synth.engines.vllm import serving

    with serving(tiny(), WORK / "left.log"):
        print("up", flush=True)
        time.sleep(3600)
    return 0


def measure_calls(_: Deadline) -> Figures:
    """At the temperature at which conversations are sampled."""
    from synth.engines.base import ChatRequest
    from synth.engines.vllm import vllm_engine
    from synth.roles.model_roles import TEMPERATURE
    from tests.synth.tiny_caller import ASKED, TOOLS, said

    texts = [list(ASKED)[seed % len(ASKED)] for seed in range(REQUESTS)]
    with vllm_engine(tiny(), WORK / "calls.log") as engine:
        answers = engine.chat([ChatRequest(said(text), TOOLS, TEMPERATURE, 60, seed) for seed, text in enumerate(texts)])
    found = Counter(problem(answer.message, TOOLS) or "well formed" for answer in answers)
    known = sum(_calls(answer.message) == [ASKED[text]] for text, answer in zip(texts, answers, strict=True))
    print(f"    temperature {TEMPERATURE}: {dict(found)}; {known} of {REQUESTS} are the very calls that it has learned", flush=True)
    return {"vllm_tool_call_share": found["well formed"] / REQUESTS}


def problem(message: Message, tools: Sequence[Tool]) -> str:
    """What is wrong with a message that should be one call; empty where nothing is."""
    schemas = {tool.name: tool.parameters for tool in tools}
    if len(message.tool_calls) != 1:
        return f"{len(message.tool_calls)} calls"
    called = message.tool_calls[0].function
    if called.name not in schemas:
        return "no such tool"
    try:
        arguments = json.loads(called.arguments)
    except ValueError:
        return "arguments that are no JSON"
    return "" if Draft202012Validator(schemas[called.name]).is_valid(arguments) else "arguments against the schema"


def _calls(message: Message) -> list[tuple[str, object]]:
    try:
        return [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
    except ValueError:
        return []


def measure_left(_: Deadline) -> Figures:
    """The server and its workers carry a mark in their environment, as whoever asked for them does."""
    from tests.conftest import MARK, processes

    tiny()
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "benchmarks.synthesis_sections.vllm_server"]
    holder = subprocess.Popen(command, cwd=ROOT, env={**os.environ, MARK: mark}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    if holder.stdout.readline() != b"up\n":
        fail(f"vLLM did not start; see {WORK / 'left.log'}")
    begun = processes(mark)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    if len(begun) < LEAST_BEGUN:
        fail(f"only {begun} were found to run beside the server's client; nothing can be said of what is left of them")
    end = time.monotonic() + LEFT_AFTER_S
    while (left := processes(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    print(f"    {len(begun)} processes when it was killed; {len(left)} left {LEFT_AFTER_S - max(0.0, end - time.monotonic()):.1f} s later")
    return {"vllm_children_left": len(left)}


def tiny(max_model_len: int = MAX_MODEL_LEN) -> VLLMConfig:
    """Of a server of the tiny model, which is made where it is not there yet. max_model_len: longer than what it has seen is allowed."""
    from synth.engines.vllm import ENVIRONMENT, VLLMConfig
    from tests.synth import tiny_caller

    model = WORK / f"tiny-{hashlib.sha256(Path(tiny_caller.__file__).read_bytes()).hexdigest()[:8]}"
    if not (model / "tokenizer_config.json").exists():
        model.mkdir(parents=True, exist_ok=True)
        if (loss := tiny_caller.make(model)) > MOST_LOSS:
            shutil.rmtree(model)
            fail(f"the tiny model has not learned its calls: {loss:.3f} nats a token")
    flags = ("--hf-overrides", json.dumps({"max_position_embeddings": max_model_len}))
    return VLLMConfig(model=str(model), environment=ROOT / ENVIRONMENT, max_model_len=max_model_len, flags=flags)


if __name__ == "__main__":
    sys.exit(main())
