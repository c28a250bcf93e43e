"""A training stage whose tools take time: `python -P -m benchmarks.cluster.queue_sections.slow_worlds SPEC`, else as `train.run`.

One idea: the worlds of Headrace answer in microseconds, and real tools do not. Here every call waits, and those of the straggler world
`FACTOR` times as long; then the world answers as ever. Workers are spawned with this module as their main module (`__mp_main__`), so their
tools are slow as well. The environment variables of `slow_calls.py` say how slow, and which share of calls raises.
What it does not do: change the tools of a process that only imports it.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import Any

from benchmarks.cluster.queue_sections.slow_calls import CALL_S, FACTOR, FAULTS, STRAGGLER
from synth.rollouts.episode import Episode


def slow_down() -> None:
    """Makes every call of a tool in this process wait."""
    plain, rng = Episode._call, random.Random(os.getpid())

    def call(self: Episode, message: Any) -> Any:
        each_s = float(os.environ.get(CALL_S, "0.02")) * (FACTOR if self.task.world == os.environ.get(STRAGGLER) else 1)
        time.sleep(each_s * len(message.tool_calls))
        if rng.random() < float(os.environ.get(FAULTS, "0")):
            raise ConnectionError("the tool's server is away (planted)")
        return plain(self, message)

    Episode._call = call  # type: ignore[method-assign]


if __name__ in ("__main__", "__mp_main__"):
    slow_down()

if __name__ == "__main__":
    from train.run import main

    raise SystemExit(main(sys.argv[1:]))
