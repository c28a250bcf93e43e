"""What verl imports and a CPU does not have: empty modules, so that the import passes. Nothing of them is called.

One package is stubbed, in one place: `verl.utils.config.validate_config` looks up which ranks of LoRA vLLM takes, in a module that needs
vLLM for rollouts. With the stub verl falls back on the ranks that it lists itself. All else of verl that is measured here (agent loop,
datasets, replay buffer, advantages, configuration, SFT trainer) is imported without a stub.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest.mock import patch

STUBBED = {"vllm": "needs CUDA, or a build of its own; imported by `verl.workers.rollout.vllm_rollout.utils`"}
"""Package -> why."""
_VLLM = "0.24.0"
"""The version that verl 0.9.1 pins."""
_ABSENT = ("vllm.config.lora",)


class _EmptyModule(ModuleType):
    """Any name is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in STUBBED or fullname in _ABSENT:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def stubbed_imports() -> Iterator[None]:
    """Inside, the packages of `STUBBED` are empty modules; does nothing if they are installed."""
    real = importlib.metadata.version
    try:
        real("vllm")
    except importlib.metadata.PackageNotFoundError:
        finder = _Finder()
        sys.meta_path.insert(0, finder)
        try:
            with patch("importlib.metadata.version", lambda name: _VLLM if name == "vllm" else real(name)):
                yield
        finally:
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name.partition(".")[0] in STUBBED]:
                del sys.modules[name]
    else:
        yield
