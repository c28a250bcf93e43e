"""Reading raw requests in any world: how often the frame is right, by how sure the reader is. `make bench ground`.

`ground_sections/english.py`: real English requests to services that nothing was fitted on.
`ground_sections/near_misses.py`: requests that name what a world holds, and ask for what no tool does.
"""

from __future__ import annotations

from benchmarks.ground_sections import english, near_misses
from benchmarks.harness import Section, run_sections


def sections() -> list[Section]:
    return [
        Section("real requests in English", english.KEYS, english.measure, minutes=english.MINUTES),
        Section("near misses", near_misses.KEYS, near_misses.measure, minutes=near_misses.MINUTES),
    ]


if __name__ == "__main__":
    raise SystemExit(run_sections("ground", sections()))
