"""Engines by name: `openai:MODEL`, `vllm:MODEL`, `hf:FOLDER`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from storage.errors import BadInput
from synth.engines.base import Engine
from synth.engines.budget import Budget
from synth.engines.cache import Answers
from synth.engines.local.model_folder import check_folder

_HASHED = (".json", ".safetensors", ".bin", ".jinja")
_HASHED_BYTES = 1 << 20
"""Bytes that are hashed at each end of a file."""


@dataclass(frozen=True, slots=True)
class EngineUse:
    """How an engine will be used.

    log: file for the output of a server that is started.
    answers, budget: see `OpenAIEngine`; a free engine uses neither.
    tools: whether it must accept tools.
    traced: whether answers should contain tokens, if the engine can return them.
    in_flight: number of concurrent requests.
    timeout_s: time for one attempt, in seconds.
    """

    log: Path
    answers: Answers | None = None
    budget: Budget | None = None
    tools: bool = False
    traced: bool = False
    in_flight: int = 64
    timeout_s: float = 120.0


class EngineKind(NamedTuple):
    """A kind of engine.

    open: a context manager of a checked engine.
    check: checks a model without starting a server.
    checked: what a model that passed the check can do, for `headrace doctor`.
    """

    open: Callable[[str, EngineUse], AbstractContextManager[Engine]]
    check: Callable[[str, EngineUse], None]
    checked: str


@contextmanager
def _open_openai(model: str, use: EngineUse) -> Iterator[Engine]:
    from synth.engines.openai import OpenAIConfig, OpenAIEngine

    config = OpenAIConfig(model=model, in_flight=use.in_flight, timeout_s=use.timeout_s)
    with OpenAIEngine(config, answers=use.answers, budget=use.budget) as engine:
        engine.check(tools=use.tools, traced=use.traced)
        yield engine


def _check_openai(model: str, use: EngineUse) -> None:
    with _open_openai(model, use):
        pass


@contextmanager
def _open_vllm(model: str, use: EngineUse) -> Iterator[Engine]:
    from synth.engines.vllm import VLLMConfig, vllm_engine

    config = VLLMConfig(model=model, max_num_seqs=use.in_flight, timeout_s=use.timeout_s)
    weights = weights_of(f"vllm:{model}")
    name = f"vllm:{model}@{weights}" if weights else f"vllm:{model}"
    with vllm_engine(config, use.log, answers=use.answers, budget=use.budget, name=name) as engine:
        engine.check(tools=use.tools, traced=use.traced)
        yield engine


def _check_vllm(model: str, _: EngineUse) -> None:
    from synth.engines.vllm import VLLMConfig, check_model

    check_model(VLLMConfig(model=model))


@contextmanager
def _open_hf(model: str, _: EngineUse) -> Iterator[Engine]:
    from synth.engines.local.hf import HFEngine

    yield HFEngine(model)


ENGINES: dict[str, EngineKind] = {
    "openai": EngineKind(_open_openai, _check_openai, "answers, and takes tools"),
    "vllm": EngineKind(_open_vllm, _check_vllm, "can be started (--engine starts it, and asks it)"),
    "hf": EngineKind(_open_hf, lambda model, _: check_folder(Path(model)), "its folder is there (--engine loads it, and asks it)"),
}
"""Kinds of engines by the word before the colon. A new kind is an entry here (docs/extending.md)."""


def engine_named(name: str, use: EngineUse) -> AbstractContextManager[Engine]:
    """The engine of this name, checked, for as long as the context lasts.

    Raises:
        BadInput: no such kind; the model does not exist, the server does not serve it, or it accepts no tools.
        HeadraceError: a started server did not come up.
    """
    kind, model = kind_and_model(name)
    return ENGINES[kind].open(model, use)


def weights_of(name: str) -> str:
    """A short hash of the engine's model folder (of each file its size, beginning and end), which changes with the weights; empty for a
    model that is no folder here."""
    folder = Path(kind_and_model(name)[1])
    if not (folder / "config.json").is_file():
        return ""
    digest = hashlib.sha256()
    for path in sorted(one for one in folder.iterdir() if one.suffix in _HASHED):
        with path.open("rb") as file:
            digest.update(f"{path.name} {path.stat().st_size} ".encode() + file.read(_HASHED_BYTES))
            file.seek(max(0, path.stat().st_size - _HASHED_BYTES))
            digest.update(file.read())
    return digest.hexdigest()[:8]


def check_engine(name: str, *, tools: bool = False) -> None:
    """Checks an engine without starting a server. Only its use can show that it works.

    Raises:
        BadInput: no such kind; the server does not answer, refuses the key, does not serve the model, or accepts no tools; the folder
            does not exist or lacks a file that a chat needs.
    """
    kind, model = kind_and_model(name)
    ENGINES[kind].check(model, EngineUse(Path(), tools=tools))


def kind_and_model(name: str) -> tuple[str, str]:
    """The two parts of an engine's name.

    Raises:
        BadInput: no such kind, or no model.
    """
    kind, _, model = name.partition(":")
    if kind not in ENGINES or not model:
        raise BadInput(f"no engine is called {name!r}; give one of {', '.join(f'{kind}:MODEL' for kind in ENGINES)}")
    return kind, model
