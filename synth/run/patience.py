"""The patience of a run with proposals in vain: it warns early, and stops after a number of them in a row.

One idea: it stops by the state of the run alone, so a repeated call stops at the same proposal with the same words. The warning comes as
early as it can: it counts the proposals that are finished when it looks, which may be others in a repeated call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.errors import HeadraceError
from synth.run.config import SynthesisConfig
from synth.run.proposals import Proposal
from synth.run.run_state import RunState

_WARN_AFTER = 20
"""Proposals after which a run without an accepted conversation warns."""


class Patience:
    """Args:
    state: of the run, which its rounds change.
    warn: gets the warning, one line.
    is_scripted: whether all roles are scripted.
    """

    def __init__(self, config: SynthesisConfig, state: RunState, warn: Callable[[str], None], *, is_scripted: bool) -> None:
        self._config, self._state, self._warn, self._is_scripted = config, state, warn, is_scripted
        self._has_warned = False

    def limit(self, proposals: int) -> int:
        """The number of proposals of the next round: at most so many that it ends where the run would stop."""
        patience = self._config.patience
        return proposals if patience is None else min(proposals, patience - self._state.in_vain)

    def check(self) -> None:
        """Raises HeadraceError if the last proposals, as many as the patience, gave no accepted conversation."""
        state, patience = self._state, self._config.patience
        if patience is None or state.in_vain < patience:
            return
        change = "the worlds" if self._is_scripted else "the engines of the roles, or the worlds"
        raise HeadraceError(
            f"stopped after {state.in_vain:,} proposals in a row without an accepted conversation; {state.accepted:,} of "
            f"{self._config.accepted:,} are accepted and kept; {state.most_frequent_reason()} (`headrace explain` shows it). Change "
            f"{change}, or raise synthesize.patience"
        )

    def watch(self, proposals: Sequence[Proposal] = ()) -> None:
        """Warns, once, if neither the rounds so far nor these proposals gave an accepted conversation. Calibration does not count."""
        steered = [one for one in proposals if one.job.cell is not None][: max(0, _WARN_AFTER - self._state.proposals)]
        tried = self._state.proposals + len(steered)
        if self._has_warned or tried < _WARN_AFTER or self._state.accepted or any(one.accepted for one in steered):
            return
        self._has_warned = True
        patience = self._config.patience
        stop = f"; the run stops after {patience:,} in a row (synthesize.patience)" if patience is not None else ""
        self._warn(
            f"none of the first {tried:,} proposals gave an accepted conversation, {self._state.most_frequent_reason(steered)}{stop}"
        )
