"""Synthesis with language models: what its client costs and loses, and whether a real server gives well-formed calls.

client      `client.py`: calls a CPU-second, alone and against other libraries' clients
faults      `faults.py`: what is lost or paid twice when the server and the client fail in every way, and when a budget is spent
vllm        `vllm_server.py`: a real vLLM server with a tiny model that knows a few calls by heart
roles       `roles.py`: what simulated users and judges are worth
experiment  `diversity.py`: whether steering for diversity beats more of the same, at equal tokens
"""

from __future__ import annotations

import sys

from benchmarks.harness import Section, run_sections
from benchmarks.synthesis_sections import client, diversity, faults, roles, vllm_server


def sections() -> list[Section]:
    return [
        *client.sections(),
        *faults.sections(),
        *vllm_server.sections(),
        *roles.sections(),
        *diversity.sections(),
    ]


def main() -> int:
    return run_sections("synthesis", sections())


if __name__ == "__main__":
    sys.exit(main())
