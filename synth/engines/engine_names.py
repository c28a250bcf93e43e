"""Engines by the names that configurations and commands give them: `openai:MODEL`, `vllm:MODEL`, `hf:FOLDER`."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from storage.errors import BadInput
from synth.engines.base import Engine
from synth.engines.budget import Budget
from synth.engines.cache import Answers
from synth.engines.local.model_folder import check_folder

KINDS = ("openai", "vllm", "hf")
_WEIGHED = (".json", ".safetensors", ".bin", ".jinja")
_LOOKED_AT = 1 << 20
"""Bytes that are read at each end of a file."""


@contextlib.contextmanager
def engine_named(
    name: str,
    *,
    log: Path,
    answers: Answers | None = None,
    budget: Budget | None = None,
    tools: bool = False,
    traced: bool = False,
    in_flight: int = 64,
    timeout_s: float = 120.0,
) -> Iterator[Engine]:
    """The engine of this name, looked at before it is used, for as long as the context lasts.

    Args:
        log: where a server that is started for it writes. answers, budget: see `OpenAIEngine`; `hf:` is free, and uses neither.
        tools: whether it has to take tools. traced: whether its tokens are wanted, as far as it tells them.
        in_flight, timeout_s: requests that are with the server at once, and how long one try may take; `hf:` takes them in turn.

    Raises:
        BadInput: no such kind; what is named is not there, does not serve the model, or takes no tools.
        HeadraceError: a server that was started did not come up.
    """
    kind, model = kind_and_model(name)
    if kind == "hf":
        from synth.engines.local.hf import HFEngine

        yield HFEngine(model)
    elif kind == "openai":
        from synth.engines.openai import OpenAIConfig, OpenAIEngine

        asked = OpenAIConfig(model=model, in_flight=in_flight, timeout_s=timeout_s)
        with OpenAIEngine(asked, answers=answers, budget=budget) as engine:
            engine.check(tools=tools, traced=traced)
            yield engine
    else:
        from synth.engines.vllm import VLLMConfig, vllm_engine

        served = VLLMConfig(model=model, max_num_seqs=in_flight, timeout_s=timeout_s)
        name = f"{name}@{weights}" if (weights := weights_of(name)) else name
        with vllm_engine(served, log, answers=answers, budget=budget, name=name) as engine:
            engine.check(tools=tools, traced=traced)
            yield engine


def weights_of(name: str) -> str:
    """A short hash of the files behind an engine whose model is a folder here (of large ones their sizes, beginnings and ends), so that
    other weights in the same place are not taken for it; empty for a model by name."""
    _, model = kind_and_model(name)
    folder = Path(model)
    if not (folder / "config.json").is_file():
        return ""
    digest = hashlib.sha256()
    for path in sorted(one for one in folder.iterdir() if one.suffix in _WEIGHED):
        with path.open("rb") as file:
            digest.update(f"{path.name} {path.stat().st_size} ".encode() + file.read(_LOOKED_AT))
            file.seek(max(0, path.stat().st_size - _LOOKED_AT))
            digest.update(file.read())
    return digest.hexdigest()[:8]


def look_at(name: str, *, tools: bool = False) -> None:
    """Looks at an engine without starting a server of its own: that it may be used can then only be told by using it.

    Raises:
        BadInput: no such kind; a server that does not answer, refuses the key, does not serve the model, or takes no tools where it
            has to; no such folder, or one that lacks what a chat takes.
    """
    kind, model = kind_and_model(name)
    if kind == "openai":
        with engine_named(name, log=Path(), tools=tools):
            pass
    elif kind == "vllm":
        from synth.engines import vllm

        if Path(model).is_dir():
            check_folder(Path(model))
        vllm.look_at(vllm.VLLMConfig(model=model))
    else:
        check_folder(Path(model))


def kind_and_model(name: str) -> tuple[str, str]:
    """What an engine's name says; nothing is started or asked.

    Raises:
        BadInput: no such kind, or no model.
    """
    kind, _, model = name.partition(":")
    if kind not in KINDS or not model:
        raise BadInput(f"no engine is called {name!r}; give one of {', '.join(f'{kind}:MODEL' for kind in KINDS)}")
    return kind, model
