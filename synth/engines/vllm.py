"""The engine `vllm:MODEL`: starts a vLLM server, which ends with the engine.

vLLM and Prefect need different versions of the same packages, so vLLM has its own environment (`make vllm`); the engine talks to the
server as to any OpenAI-compatible one (`openai.py`). Without a GPU it is the CPU build with one thread and 32-bit floats, for tests.
The server ends with the process that started it, also after `kill -9` (`child_watch.py`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from storage.errors import BadInput, HeadraceError
from synth.engines import child_watch
from synth.engines.budget import Budget
from synth.engines.cache import Answers
from synth.engines.local.model_folder import check_folder
from synth.engines.openai import OpenAIConfig, OpenAIEngine

ENVIRONMENT = Path(".venv-vllm")
_CPU_SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "TORCH_COMPILE_DISABLE": "1",
}
CPU_ENGINE: Mapping[str, str | float | bool] = {
    "dtype": "float32",
    "enforce_eager": True,
    "gpu_memory_utilization": 0.3,
    "enable_chunked_prefill": False,  # a prompt in two chunks resets its generator to an earlier state, which fails on a CPU
}
"""vLLM's settings without a GPU."""
_SETTINGS = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
_TRAINED_SETTINGS = {"VLLM_SERVER_DEV_MODE": "1"}
"""Adds the endpoints that replace weights and put the server to sleep. Every process of this machine can reach them."""
_POLL_S = 0.25
_TAIL_LINES, _MAX_CAUSE_LENGTH = 12, 300
_ERROR = re.compile(r"^(?:\([^)]*\) )?(?:ERROR .*?\] )?((?:\w+\.)*\w*(?:Error|Exception): .+)", re.MULTILINE)
"""An exception in a log: after process and place (vLLM), or at the beginning of a line (Python)."""
_CONSEQUENCE = "EngineDeadError"
"""The error of vLLM's API server when its engine process died; not the cause."""


class VLLMConfig(BaseModel):
    """Configuration of a vLLM server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1, description="Folder of the model, or its name on the Hugging Face hub if it is in the cache.")
    environment: Path = Field(
        ENVIRONMENT, description="Virtual environment that vLLM is installed in; without it, the one that Headrace runs in."
    )
    tool_parser: str | None = Field("hermes", description="vLLM's parser of the model's tool calls; None: no tool calls.")
    max_model_len: int | None = Field(None, ge=16, description="Longest context in tokens; None: the model's own.")
    max_num_seqs: int = Field(64, ge=1, description="Conversations that the server answers at once.")
    seed: int = Field(0, ge=0, description="The server's seed; requests have their own.")
    timeout_s: float = Field(120.0, gt=0, description="Time limit of one attempt of a request, in seconds.")
    start_timeout_s: float = Field(900.0, gt=0, description="Time limit of the server's start, in seconds.")
    is_trained: bool = Field(
        False,
        description="Whether the policy is in training: the server starts with random weights, and takes those of the trainer.",
    )
    flags: tuple[str, ...] = Field((), description="Further flags for the server, as vLLM takes them.")

    @property
    def python(self) -> Path:
        """The interpreter of `environment`; the running one if that is the default, is not there, and the running one has vLLM."""
        own = (self.environment / "bin" / "python").absolute()
        is_default = self.environment == ENVIRONMENT
        return Path(sys.executable) if is_default and not own.exists() and importlib.util.find_spec("vllm") else own


@contextlib.contextmanager
def vllm_engine(
    config: VLLMConfig,
    log: Path,
    *,
    answers: Answers | None = None,
    budget: Budget | None = None,
    name: str = "",
) -> Iterator[OpenAIEngine]:
    """An engine with its own server. log: file for the server's output. answers, budget, name: see `OpenAIEngine`."""
    with serving(config, log) as server:
        client = OpenAIConfig(model=config.model, base_url=server.url, in_flight=2 * config.max_num_seqs, timeout_s=config.timeout_s)
        with OpenAIEngine(client, answers=answers, budget=budget, name=name or f"vllm:{config.model}", ended=server.ended) as engine:
            yield engine


@dataclass(frozen=True)
class Server:
    """A running server. ended: returns why it has ended; empty while it runs."""

    url: str
    ended: Callable[[], str]


@contextlib.contextmanager
def serving(config: VLLMConfig, log: Path) -> Iterator[Server]:
    """A server of the model, for as long as the context lasts.

    Raises:
        BadInput: see `check_model`.
        HeadraceError: the server ended, or did not answer in time; the message has the end of its log.
    """
    check_model(config)
    port = _free_port()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        begin = out.tell()
        command = [sys.executable, "-P", child_watch.__file__, *_command(config, port)]
        variables = server_environment() | (_TRAINED_SETTINGS if config.is_trained else {})
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=variables, start_new_session=True)

    def end_message() -> str:
        return "" if process.poll() is None else _end(process.returncode, log, begin)

    try:
        _wait_until_healthy(process, f"http://127.0.0.1:{port}/health", config, log)
        yield Server(f"http://127.0.0.1:{port}/v1", end_message)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


@cache
def _end(code: int, log: Path, begin: int) -> str:
    """Why a server ended: the last exception in its log from byte `begin` on."""
    with contextlib.suppress(OSError):
        errors = _ERROR.findall(log.read_bytes()[begin:].decode(errors="replace"))
        causes = [text for text in errors if _CONSEQUENCE not in text] or errors
        if causes:
            return f"vLLM ended with code {code}: {causes[-1][:_MAX_CAUSE_LENGTH]} (see {log})"
    return f"vLLM ended with code {code}, and did not say why (see {log})"


def check_model(config: VLLMConfig) -> None:
    """Raises BadInput if vLLM is not installed in the environment, or the model's folder lacks a file that a chat needs."""
    folder = Path(config.model)
    if folder.is_dir():
        check_folder(folder)
    elif config.model.startswith((".", "/")):
        raise BadInput(f"there is no model folder {folder}")
    check_installed(config)


def check_installed(config: VLLMConfig) -> None:
    """Raises BadInput if vLLM is not installed."""
    if not config.python.exists():
        raise BadInput(f"no vLLM at {config.environment}: `make vllm` installs it there, or name the environment that has it")


def _command(config: VLLMConfig, port: int) -> list[str]:
    arguments = ["--model", config.model, "--served-model-name", config.model, "--host", "127.0.0.1", "--port", str(port)]
    arguments += ["--seed", str(config.seed), "--max-num-seqs", str(config.max_num_seqs), "--enable-prefix-caching"]
    arguments += ["--logprobs-mode", "processed_logprobs"]  # at the request's temperature
    arguments += ["--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}']
    if config.tool_parser is not None:
        arguments += ["--enable-auto-tool-choice", "--tool-call-parser", config.tool_parser]
    if config.max_model_len is not None:
        arguments += ["--max-model-len", str(config.max_model_len)]
    if config.is_trained:
        arguments += ["--load-format", "dummy", *(["--enable-sleep-mode"] if has_gpu() else [])]
    settings = {} if has_gpu() else CPU_ENGINE
    for name, value in settings.items():
        flag = name.replace("_", "-")
        arguments += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return [str(config.python), "-m", "vllm.entrypoints.openai.api_server", *arguments, *config.flags]


def server_environment() -> dict[str, str]:
    """The server's environment, without our API key and Python settings."""
    removed = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "OPENAI_API_KEY")
    environment = {key: value for key, value in os.environ.items() if key not in removed}
    return environment | _SETTINGS | ({} if has_gpu() else _CPU_SETTINGS)


def has_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_until_healthy(process: subprocess.Popen[bytes], url: str, config: VLLMConfig, log: Path) -> None:
    end = time.monotonic() + config.start_timeout_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise HeadraceError(
                f"vLLM ended with code {process.returncode} while it was starting {config.model}; the end of {log}:\n{_tail(log)}"
            )
        with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(_POLL_S)
    raise HeadraceError(f"vLLM did not answer within {config.start_timeout_s:.0f} s; the end of {log}:\n{_tail(log)}")


def _tail(log: Path) -> str:
    lines: Sequence[str] = log.read_text(errors="replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:])
