"""What a run that focuses on failures will ask for, and why, as tables: shown before it begins.

The probabilities are those of the first draw, when nothing is accepted yet; later the rarity of what was made, and how often it works
out, have their say. Cells of domains and modes that were not probed have no urgency: they share what the others leave.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from flows.config import Config
from flows.summary_tables import Table
from storage.store import Store
from synth.blueprints.blueprint import Bands
from synth.blueprints.cell import Cell
from synth.run.failure_targeting import Standing, controller_of, failures, focus_of
from synth.run.setup import Groundwork
from synth.worlds.stored_worlds import register_stored

Label = TypeVar("Label", bound=Hashable)
_SHOWN = 20
"""The most urgent; the rest is told in one row."""
_NOTHING = dict.fromkeys(("urgency", "tasks", "rollouts", "success", "95 %", "never, at times, always"), "")
_BANDS_SQL = """SELECT max(value) FILTER (metric = 'complexity_low_to') AS low_to,
  max(value) FILTER (metric = 'complexity_high_from') AS high_from
FROM diversity WHERE run = (SELECT run FROM diversity JOIN parts USING (part_id) WHERE metric = 'complexity_low_to'
                            ORDER BY committed_at DESC, run LIMIT 1)"""


def asked_for(config: Config) -> list[Table]:
    """For `synthesize`: domains, and mode families in complexity bands (as the run committed last divides them; left out where none was).

    Raises:
        BadInput: there is no policy, or no probe of it. HeadraceError: no cluster of tools can serve an intent.
    """
    store, own = Store(config.store), config.synthesize
    register_stored(store)
    focus, bands = focus_of(store, own), _bands(store)
    domains = sorted(Groundwork(store, own).by_domain)
    before = controller_of(domains, own.evolution, None, None).probabilities()
    after = controller_of(domains, own.evolution, focus, bands).probabilities()

    def table(standings: Mapping[Label, Standing], label: Callable[[Cell], Label], what: str, words: Callable[[Label], str]) -> Table:
        sums: dict[Label, list[float]] = {}
        for cell in before:
            both = sums.setdefault(label(cell), [0.0, 0.0])
            both[0], both[1] = both[0] + before[cell], both[1] + after[cell]
        here = dict([(each, standing) for each, standing in _by_urgency(standings) if each in sums][:_SHOWN])
        rows = [{what: words(each)} | _told(standing) | _asked(*sums[each]) for each, standing in here.items()]
        others = [sums[each] for each in sums if each not in here]
        if others:
            rows.append({what: f"{len(others):,} others"} | _NOTHING | _asked(*map(sum, zip(*others, strict=True))))
        return Table("focus", f"What will be asked for, by what {focus.policy_id} fails or wavers at: {what}", rows)

    found = [table(focus.by_domain(), lambda cell: cell.domain, "domain", str)]
    if bands is not None:
        found.append(table(focus.by_mode(bands), lambda cell: (cell.family, cell.band), "modes and complexity", ", ".join))
    return found


def kept_for(config: Config) -> list[Table]:
    """For `curate`: the intents of the probed tasks, with what their quotas inside a stratum are multiplied by, as they stand now.

    Raises:
        BadInput: as `asked_for`.
    """
    store = Store(config.store)
    register_stored(store)
    focus = failures(store, {})
    found = _by_urgency(focus.by_intent())
    rows = [
        {"intent": f"{world}/{intent}"} | _told(standing) | {"quota": f"x {1 + config.curate.coverage.focus * standing.urgency:.2f}"}
        for (world, intent), standing in found[:_SHOWN]
    ]
    if len(found) > _SHOWN:
        rows.append({"intent": f"{len(found) - _SHOWN:,} others"} | _NOTHING | {"quota": ""})
    return [Table("focus", f"What will be kept more of, by what {focus.policy_id} fails or wavers at", rows)]


def _bands(store: Store) -> Bands | None:
    low_to, high_from = store.query(_BANDS_SQL).row(0)
    return None if low_to is None else Bands(low_to, high_from)


def _by_urgency(standings: Mapping[Label, Standing]) -> Sequence[tuple[Label, Standing]]:
    return sorted(standings.items(), key=lambda item: (-item[1].urgency, str(item[0])))


def _told(standing: Standing) -> dict[str, Any]:
    some = standing.tasks - standing.never - standing.always
    return {
        "urgency": f"{standing.urgency:.2f}",
        "tasks": f"{standing.tasks:,}",
        "rollouts": f"{standing.rollouts:,}",
        "success": f"{standing.rate:.3f}",
        "95 %": f"{standing.low:.3f} to {standing.high:.3f}",
        "never, at times, always": f"{standing.never}, {some}, {standing.always}",
    }


def _asked(before: float, after: float) -> dict[str, Any]:
    return {"asked before": f"{before:.4f}", "and now": f"{after:.4f}"}
