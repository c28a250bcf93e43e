"""How slow the tools of a benchmark's stage are: the environment variables of `slow_worlds.py`, and its factor.

One idea: the process that starts a stage sets these variables for it. Importing this module changes nothing; only a process whose main
module is `slow_worlds.py` has slow tools.
"""

from __future__ import annotations

STRAGGLER = "HEADRACE_BENCH_STRAGGLER"
"""Names the world whose calls take `FACTOR` times as long."""
CALL_S = "HEADRACE_BENCH_CALL_S"
"""Seconds that a call waits."""
FAULTS = "HEADRACE_BENCH_FAULTS"
"""Share of calls that raise, as a world does whose server is away."""
FACTOR = 10
