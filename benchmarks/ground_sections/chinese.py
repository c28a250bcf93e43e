"""How well the reader reads real Chinese requests: CrossWOZ, in a world that its tables make (`crosswoz.py`).

Of the validation part, the half that no weight was fitted on; its errors were looked at in the work on `real_tasks.py`, so it is not
unseen. `GROUND_SPLIT=test` takes another part whole, whose file must lie beside. A reading is exact if domain, every value and everything
that is asked for are right.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from benchmarks.ground_sections import crosswoz
from benchmarks.ground_sections.english import Measured, real_requests
from benchmarks.harness import Deadline, Figures
from filters.reading.chinese.chinese_reader import ChineseReader

KEYS = ("zh_exact_with_asks_at_25", "zh_exact_with_asks_at_50", "zh_conf_90_precision", "zh_oos_kept_at_50", "zh_reader_rows_per_cpu_s")
MINUTES = 2


def measure(_: Deadline) -> Figures:
    real = real_requests()
    folder, requests = real.folder, crosswoz.unfitted(real.folder, real.split)
    world = crosswoz.world(folder)
    reader = ChineseReader([world])
    began = time.process_time()
    readings = reader.read([each.text for each in requests])
    cpu_s = time.process_time() - began
    read = Measured([each.confidence for each in readings], [each.is_right(one) for each, one in zip(requests, readings, strict=True)])
    trusted = [is_exact for trust, is_exact in zip(read.confidence, read.is_exact, strict=True) if trust >= 0.9]
    kept = []
    for domain in world.intents:
        reduced = ChineseReader([replace(world, intents={name: each for name, each in world.intents.items() if name != domain})])
        others = reduced.read([each.text for each in requests if each.domain == domain])
        kept.append(float(np.mean([each.confidence >= read.threshold(0.5) for each in others])))
    print(f"    {len(requests)} requests; out of scope kept by domain: {', '.join(f'{each:.3f}' for each in kept)}", flush=True)
    return {
        "zh_exact_with_asks_at_25": read.exact_at(0.25),
        "zh_exact_with_asks_at_50": read.exact_at(0.5),
        "zh_conf_90_precision": float(np.mean(trusted)),
        "zh_oos_kept_at_50": max(kept),
        "zh_reader_rows_per_cpu_s": len(requests) / cpu_s,
    }
