"""What the other machines that share a store have spent in each month.

One idea: each machine writes its own sums to one object, `spent/MACHINE.json` under the store's URL, and reads those of the others; so no
two write the same object, and nothing is counted twice. What a machine has spent since it last wrote, the others do not know yet.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from storage.object_store.shared_log import SharedLog
from storage.object_store.url_files import damage_told


class MonthSum(NamedTuple):
    """What is counted of an engine's month: tokens and nanodollars of answers, and the most of calls without an answer."""

    month: str
    engine: str
    tokens: int
    nano_usd: int


def exchange_sums(shared: SharedLog, own: Sequence[MonthSum]) -> list[MonthSum]:
    """Tells the other machines of a shared store this one's sums; the sums of all others together.

    Raises:
        HeadraceError: the object store is out of reach, or an object of another machine is damaged.
    """
    name = f"spent/{shared.machine}.json"
    if own:
        shared.files.write(name, json.dumps(own).encode())
    tokens, nano_usd = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for other in shared.files.names("spent"):
        with damage_told(f"{shared.files.url}/{other}", "delete it; that machine writes it again when it next asks"):
            for month in map(MonthSum._make, json.loads(shared.files.read(other) or b"[]") if other != name else ()):
                tokens[month.month, month.engine] += int(month.tokens)
                nano_usd[month.month, month.engine] += int(month.nano_usd)
    return [MonthSum(*key, tokens[key], nano_usd[key]) for key in tokens]
