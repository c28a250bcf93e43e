"""Reading raw requests in any world: how often the frame is right, by how sure the reader is. `make bench ground`.

`ground_sections/english.py`: real English requests to services that nothing was fitted on.
`ground_sections/chinese.py`: real Chinese requests, in a world of the tables that answer them.
`ground_sections/gate.py`: how fast a log is sifted for the reader, and what is lost.
`ground_sections/executable.py`: whether what is read can be executed in a world that is given what it names.
`ground_sections/ten_million.py`: what the whole funnel costs with twelve worlds.
`ground_sections/real_tasks.py`: what the funnel makes of real requests in a log of others.
`ground_sections/spec_needles.py`: what the funnel keeps of a log about worlds without a lexicon, in unseen wordings.
`ground_sections/near_misses.py`: requests that name what a world holds, and ask for what no tool does.
"""

from __future__ import annotations

from benchmarks.ground_sections import chinese, english, executable, gate, near_misses, real_tasks, spec_needles, ten_million
from benchmarks.harness import Section, run_sections


def sections() -> list[Section]:
    return [
        Section("real requests in English", english.KEYS, english.measure, minutes=english.MINUTES),
        Section("real requests in Chinese", chinese.KEYS, chinese.measure, minutes=chinese.MINUTES),
        Section("gate", gate.KEYS, gate.measure, minutes=gate.MINUTES),
        Section("execution", executable.KEYS, executable.measure, minutes=executable.MINUTES),
        Section("ten million rows", ten_million.KEYS, ten_million.measure, minutes=ten_million.MINUTES),
        Section("real tasks", real_tasks.KEYS, real_tasks.measure, minutes=real_tasks.MINUTES),
        Section("unseen wordings", spec_needles.KEYS, spec_needles.measure, minutes=spec_needles.MINUTES),
        Section("near misses", near_misses.KEYS, near_misses.measure, minutes=near_misses.MINUTES),
    ]


if __name__ == "__main__":
    raise SystemExit(run_sections("ground", sections()))
