"""A training stage whose tools take time: `python -P -m benchmarks.cluster.queue_sections.slow_worlds SPEC`, else as `train.run`.

One idea: the worlds of Headrace answer in microseconds, and real tools do not. Here every call waits `CALL_S`, and those of the straggler
world `FACTOR` times as long; then the world answers as ever. Workers are spawned with this module as their main module, so their tools are
slow as well. `HEADRACE_BENCH_STRAGGLER` names the straggler; `HEADRACE_BENCH_CALL_S` and `HEADRACE_BENCH_FAULTS` (a share of calls that
raise, as a world does whose server is away) change the rest.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import Any

from synth.rollouts.episode import Episode

STRAGGLER, CALL_S, FAULTS = "HEADRACE_BENCH_STRAGGLER", "HEADRACE_BENCH_CALL_S", "HEADRACE_BENCH_FAULTS"
FACTOR = 10
_plain = Episode._call
_random = random.Random(os.getpid())


def _slow_call(self: Episode, message: Any) -> Any:
    each_s = float(os.environ.get(CALL_S, "0.02")) * (FACTOR if self.task.world == os.environ.get(STRAGGLER) else 1)
    time.sleep(each_s * len(message.tool_calls))
    if _random.random() < float(os.environ.get(FAULTS, "0")):
        raise ConnectionError("the tool's server is away (planted)")
    return _plain(self, message)


Episode._call = _slow_call  # type: ignore[method-assign]

if __name__ == "__main__":
    from train.run import main

    raise SystemExit(main(sys.argv[1:]))
