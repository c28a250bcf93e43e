"""Synthesis with language models: what its client costs and loses, and whether a real server gives well-formed calls.

client      `synthesis_client.py`: calls a CPU-second, alone and against other libraries' clients
faults      `synthesis_faults.py`: what is lost or paid twice when the server and the client fail in every way, and when a budget is spent
vllm        `synthesis_vllm.py`: a real vLLM server with a tiny model that knows a few calls by heart
roles       `synthesis_roles.py`: what simulated users and judges are worth
experiment  `synthesis_experiment.py`: whether steering for diversity beats more of the same, at equal tokens
"""

from __future__ import annotations

import sys

from benchmarks import synthesis_client, synthesis_experiment, synthesis_faults, synthesis_roles, synthesis_vllm
from benchmarks.harness import Section, run_sections


def sections() -> list[Section]:
    return [
        *synthesis_client.sections(),
        *synthesis_faults.sections(),
        *synthesis_vllm.sections(),
        *synthesis_roles.sections(),
        *synthesis_experiment.sections(),
    ]


def main() -> int:
    return run_sections("synthesis", sections())


if __name__ == "__main__":
    sys.exit(main())
