"""Tables of a run that focuses on failures: what it will ask for, and why. They are printed before the run.

The probabilities are those of the first draw, before anything is accepted. Later, rarity and acceptance rate change them.
Cells of domains and modes without a probe have no urgency; they share the remaining probability.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from flows.config import Config
from flows.summaries.summary_tables import Table
from storage.conversation import mode_in_words
from storage.store import Store
from synth.blueprints.blueprint import Bands
from synth.blueprints.cell import Cell
from synth.run.evolution.failure_targeting import FailureStats, build_controller, focus_of, read_focus
from synth.run.setup import SynthesisSetup
from synth.worlds.stored_worlds import register_stored

Label = TypeVar("Label", bound=Hashable)
_SHOWN = 20
"""Rows of a table: the most urgent ones; one more row sums up the rest."""
_BLANK = dict.fromkeys(("urgency", "tasks", "rollouts", "success", "95 %", "never, sometimes, always"), "")
_BANDS_SQL = """SELECT max(value) FILTER (metric = 'complexity_low_to') AS low_to,
  max(value) FILTER (metric = 'complexity_high_from') AS high_from
FROM diversity WHERE run = (SELECT run FROM diversity JOIN parts USING (part_id) WHERE metric = 'complexity_low_to'
                            ORDER BY committed_at DESC, run LIMIT 1)"""


def synthesis_focus_tables(config: Config) -> list[Table]:
    """The focus of `synthesize`, by domain, and by mode family and complexity band.

    The bands are those of the last committed run; without one the second table is missing.

    Raises:
        BadInput: the store has no policy, or no probe of the policy.
        HeadraceError: no cluster of tools serves an intent.
    """
    store, synthesis = Store(config.store), config.synthesize
    register_stored(store)
    focus, bands = focus_of(store, synthesis), _bands(store)
    domains = sorted(SynthesisSetup(store, synthesis).by_domain)
    before = build_controller(domains, synthesis.evolution, None, None).probabilities()
    after = build_controller(domains, synthesis.evolution, focus, bands).probabilities()

    def table(stats: Mapping[Label, FailureStats], label: Callable[[Cell], Label], title: str, text_of: Callable[[Label], str]) -> Table:
        sums: dict[Label, list[float]] = {}
        for cell in before:
            pair = sums.setdefault(label(cell), [0.0, 0.0])
            pair[0], pair[1] = pair[0] + before[cell], pair[1] + after[cell]
        shown = dict([(key, one) for key, one in _by_urgency(stats) if key in sums][:_SHOWN])
        rows = [{title: text_of(key)} | _stats_columns(one) | _share_columns(*sums[key]) for key, one in shown.items()]
        others = [sums[key] for key in sums if key not in shown]
        if others:
            rows.append({title: f"{len(others):,} others"} | _BLANK | _share_columns(*map(sum, zip(*others, strict=True))))
        return Table("focus", f"Focus of the synthesis, by failures of {focus.policy_id}: {title}", rows)

    focus_tables = [table(focus.by_domain(), lambda cell: cell.domain, "domain", str)]
    if bands is not None:
        focus_tables.append(table(focus.by_mode(bands), lambda cell: (cell.family, cell.band), "modes and complexity", _cell_text))
    return focus_tables


def curation_focus_tables(config: Config) -> list[Table]:
    """The focus of `curate`: the intents of the probed tasks, and the factors of their quotas in a stratum.

    Raises:
        BadInput: the store has no policy, or no probe of the policy.
    """
    store = Store(config.store)
    register_stored(store)
    focus = read_focus(store, {})
    stats = _by_urgency(focus.by_intent())
    rows = [
        {"intent": f"{world}/{intent}"} | _stats_columns(one) | {"quota": f"x {1 + config.curate.coverage.focus * one.urgency:.2f}"}
        for (world, intent), one in stats[:_SHOWN]
    ]
    if len(stats) > _SHOWN:
        rows.append({"intent": f"{len(stats) - _SHOWN:,} others"} | _BLANK | {"quota": ""})
    return [Table("focus", f"Focus of the curation, by failures of {focus.policy_id}", rows)]


def _cell_text(cell: tuple[str, str]) -> str:
    family, band = cell
    return f"{mode_in_words(family)}; {band}"


def _bands(store: Store) -> Bands | None:
    low_to, high_from = store.query(_BANDS_SQL).row(0)
    return None if low_to is None else Bands(low_to, high_from)


def _by_urgency(stats: Mapping[Label, FailureStats]) -> Sequence[tuple[Label, FailureStats]]:
    return sorted(stats.items(), key=lambda item: (-item[1].urgency, str(item[0])))


def _stats_columns(stats: FailureStats) -> dict[str, Any]:
    sometimes = stats.tasks - stats.never - stats.always
    return {
        "urgency": f"{stats.urgency:.2f}",
        "tasks": f"{stats.tasks:,}",
        "rollouts": f"{stats.rollouts:,}",
        "success": f"{stats.rate:.3f}",
        "95 %": f"{stats.low:.3f} to {stats.high:.3f}",
        "never, sometimes, always": f"{stats.never}, {sometimes}, {stats.always}",
    }


def _share_columns(before: float, after: float) -> dict[str, Any]:
    return {"share before": f"{before:.4f}", "share now": f"{after:.4f}"}
