"""The engine `vllm:MODEL`: a vLLM server that is started for it, from an environment of its own, and ends with it.

vLLM wants other versions of what Prefect wants, so it lives in an environment apart (`make vllm`), and is talked to as any
OpenAI-compatible server is (`openai.py`). Where there is no GPU the CPU build serves, one thread, 32-bit floats: a tiny model for tests, no
teacher.
The server's processes end with whoever holds the context, also after `kill -9` (`child_watch.py`).
"""

from __future__ import annotations

import contextlib
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
    "enable_chunked_prefill": False,  # a prompt in two pieces steps its seed's generator back, which a CPU's cannot: the server would end
}
"""vLLM's settings where there is no GPU."""
_SETTINGS = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
_POLL_S = 0.25
_TAIL = 12
_LONGEST_WHY = 300
_ERROR = re.compile(r"^(?:\([^)]*\) )?(?:ERROR .*?\] )?((?:\w+\.)*\w*(?:Error|Exception): .+)", re.MULTILINE)
"""Where a log names an exception: behind the process and the place, as vLLM writes it, or at a line's beginning, as Python does."""
_TOLD_OF_ANOTHER = "EngineDeadError"
"""What vLLM's front says of its back, and is no cause."""


class VLLMConfig(BaseModel):
    """Which model is served, and how."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1, description="Folder of the model, or its name on the Hugging Face hub if it is in the cache.")
    environment: Path = Field(ENVIRONMENT, description="Virtual environment that vLLM is installed in.")
    tool_parser: str | None = Field("hermes", description="vLLM's parser of the model's tool calls; None where it makes none.")
    max_model_len: int | None = Field(None, ge=16, description="Longest context in tokens; None: the model's own.")
    max_num_seqs: int = Field(64, ge=1, description="Conversations that the server works on at once.")
    seed: int = Field(0, ge=0, description="The server's seed; requests have their own.")
    timeout_s: float = Field(120.0, gt=0, description="How long one try of a request may take.")
    start_timeout_s: float = Field(900.0, gt=0, description="How long it may take until the server answers.")
    flags: tuple[str, ...] = Field((), description="Further flags for the server, as vLLM takes them.")

    @property
    def python(self) -> Path:
        return (self.environment / "bin" / "python").absolute()


@contextlib.contextmanager
def vllm_engine(
    config: VLLMConfig,
    log: Path,
    *,
    answers: Answers | None = None,
    budget: Budget | None = None,
    name: str = "",
) -> Iterator[OpenAIEngine]:
    """An engine on a server of its own; see `OpenAIEngine` for answers, budget and name. log: where the server's output goes."""
    with serving(config, log) as server:
        asked = OpenAIConfig(model=config.model, base_url=server.url, in_flight=2 * config.max_num_seqs, timeout_s=config.timeout_s)
        named = name or f"vllm:{config.model}"
        with OpenAIEngine(asked, answers=answers, budget=budget, name=named, ended=server.ended) as engine:
            yield engine


@dataclass(frozen=True)
class Server:
    """A server that answers at url. ended: why it does no longer; empty while it runs."""

    url: str
    ended: Callable[[], str]


@contextlib.contextmanager
def serving(config: VLLMConfig, log: Path) -> Iterator[Server]:
    """A server of the model, for as long as the context lasts.

    Raises:
        BadInput: vLLM is not installed in the environment, or a folder that is named holds no model.
        HeadraceError: the server ended, or did not answer in time; with the end of its log.
    """
    look_at(config)
    port = _free_port()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        begin = out.tell()
        command = [sys.executable, "-P", child_watch.__file__, *_command(config, port)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=server_environment(), start_new_session=True)

    def ended() -> str:
        return "" if process.poll() is None else _end(process.returncode, log, begin)

    try:
        _wait_until_healthy(process, f"http://127.0.0.1:{port}/health", config, log)
        yield Server(f"http://127.0.0.1:{port}/v1", ended)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


@cache
def _end(code: int, log: Path, begin: int) -> str:
    """That a server has ended, and the last exception that its log names from `begin` on."""
    with contextlib.suppress(OSError):
        named = _ERROR.findall(log.read_bytes()[begin:].decode(errors="replace"))
        causes = [text for text in named if _TOLD_OF_ANOTHER not in text] or named
        if causes:
            return f"vLLM ended with code {code}: {causes[-1][:_LONGEST_WHY]} (see {log})"
    return f"vLLM ended with code {code}, and did not say why (see {log})"


def look_at(config: VLLMConfig) -> None:
    """Raises BadInput where vLLM is not installed in the environment, or a folder that is named holds no model."""
    folder = Path(config.model)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise BadInput(f"{folder} is no model folder (no config.json)")
    if config.model.startswith((".", "/")) and not folder.is_dir():
        raise BadInput(f"there is no model folder {folder}")
    if not config.python.exists():
        raise BadInput(f"no vLLM at {config.environment}: `make vllm` installs it there, or name the environment that has it")


def _command(config: VLLMConfig, port: int) -> list[str]:
    told = ["--model", config.model, "--served-model-name", config.model, "--host", "127.0.0.1", "--port", str(port)]
    told += ["--seed", str(config.seed), "--max-num-seqs", str(config.max_num_seqs), "--enable-prefix-caching"]
    told += ["--logprobs-mode", "processed_logprobs"]  # of what was sampled from: at the request's temperature
    told += ["--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}']
    if config.tool_parser is not None:
        told += ["--enable-auto-tool-choice", "--tool-call-parser", config.tool_parser]
    if config.max_model_len is not None:
        told += ["--max-model-len", str(config.max_model_len)]
    if not has_gpu():
        told += [word for name, value in CPU_ENGINE.items() for word in _flag(name, value)]
    return [str(config.python), "-m", "vllm.entrypoints.openai.api_server", *told, *config.flags]


def _flag(name: str, value: str | float | bool) -> tuple[str, ...]:
    """A setting of vLLM's as its command line takes it."""
    flag = name.replace("_", "-")
    return (f"--{'' if value else 'no-'}{flag}",) if isinstance(value, bool) else (f"--{flag}", str(value))


def server_environment() -> dict[str, str]:
    """Of the server: no key of ours, nothing of our own Python's."""
    ours = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "OPENAI_API_KEY")
    own = {key: value for key, value in os.environ.items() if key not in ours}
    return own | _SETTINGS | ({} if has_gpu() else _CPU_SETTINGS)


def has_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_until_healthy(process: subprocess.Popen[bytes], url: str, config: VLLMConfig, log: Path) -> None:
    begun = time.monotonic()
    while time.monotonic() - begun < config.start_timeout_s:
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
    return "\n".join(lines[-_TAIL:])
