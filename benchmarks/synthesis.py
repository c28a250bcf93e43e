"""Synthesis with language models: cost and losses of its client, and the share of well-formed calls of a real server.

client      `client.py`: calls per CPU-second, alone and compared with other libraries' clients
faults      `faults.py`: answers that are lost or paid twice when server or client fail, and when a budget is spent
vllm        `vllm_server.py`: a real vLLM server with a tiny model that was trained on a few calls
roles       `roles.py`: quality of simulated users and judges
"""

from __future__ import annotations

import sys

from benchmarks.harness import Section, run_sections
from benchmarks.synthesis_sections import client, faults, roles, vllm_server


def sections() -> list[Section]:
    return [
        *client.sections(),
        *faults.sections(),
        *vllm_server.sections(),
        *roles.sections(),
    ]


def main() -> int:
    return run_sections("synthesis", sections())


if __name__ == "__main__":
    sys.exit(main())
