"""Engines by the names that configurations and commands give them: `openai:MODEL`, `vllm:MODEL`, `hf:FOLDER`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from storage.errors import BadInput
from synth.engines.answers import Answers
from synth.engines.base import Engine
from synth.engines.budget import Budget

KINDS = ("openai", "vllm", "hf")


@contextlib.contextmanager
def engine_named(name: str, *, log: Path, answers: Answers | None = None, budget: Budget | None = None) -> Iterator[Engine]:
    """The engine of this name, looked at before it is used, for as long as the context lasts.

    Args:
        log: where a server that is started for it writes. answers, budget: see `OpenAIEngine`; `hf:` is free, and uses neither.

    Raises:
        BadInput: no such kind; what is named is not there, does not serve the model, or takes no tools.
        HeadraceError: a server that was started did not come up.
    """
    kind, _, model = name.partition(":")
    if kind not in KINDS or not model:
        raise BadInput(f"no engine is called {name!r}; give one of {', '.join(f'{kind}:MODEL' for kind in KINDS)}")
    if kind == "hf":
        from synth.engines.hf import HFEngine

        yield HFEngine(model)
    elif kind == "openai":
        from synth.engines.openai import OpenAIConfig, OpenAIEngine

        with OpenAIEngine(OpenAIConfig(model=model), answers=answers, budget=budget) as engine:
            engine.check(tools=True)
            yield engine
    else:
        from synth.engines.vllm import VLLMConfig, vllm_engine

        with vllm_engine(VLLMConfig(model=model), log, answers=answers, budget=budget) as engine:
            engine.check(tools=True)
            yield engine
