"""What ROLL imports or asks of a machine with GPUs and Ray, replaced so that its agentic classes run without. Runs in `.venv-roll` only.

One idea: only what is listed here is replaced, with its reason; what runs then is ROLL's, GEM's and sglang's own code.

| replaced | why |
|---|---|
| the `__init__` of the package `sglang` | it loads sglang's front end (IPython, launchers); its parser of calls and its protocol are real |
| `current_platform.device_count` | ROLL overwrites `num_gpus_per_node` with the number of GPUs that the driver sees |
| `ray.get` in ROLL's `proxy_env_manager`, and the actor of its `GroupQueueManager` | Ray is not started: the class itself is called |
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any


def load_sglang() -> None:
    """Makes sglang's submodules importable without its `__init__`. Call it before ROLL's managers are imported."""
    spec = importlib.util.find_spec("sglang")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("sglang is not installed: make roll")
    package = ModuleType("sglang")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["sglang"] = package


def pretend_gpus(count: int) -> None:
    """Makes ROLL's driver see this number of GPUs on its machine."""
    from roll.platforms import current_platform

    type(current_platform).device_count = staticmethod(lambda: count)


def call_actors_directly() -> None:
    """Makes ROLL's environment managers take an actor's result as it is."""
    from roll.pipeline.agentic.env_manager import proxy_env_manager

    proxy_env_manager.ray = SimpleNamespace(get=lambda result: result)


class DirectActor:
    """An object of a class that ROLL has made an actor; its methods run one at a time in the event loop of a thread, as an actor's do."""

    def __init__(self, kind: Any, *arguments: Any) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.actor = self._run(kind.__ray_metadata__.modified_class, arguments)

    def __getattr__(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(remote=lambda *arguments: self._run(getattr(self.actor, name), arguments))

    def _run(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        async def call() -> Any:
            result = function(*arguments)
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()
