"""Order of the rows in SFT: batches of rows of similar length, the same for any number of processes.

One idea: the order is TRL's for one process (`group_by_length`), grouped by the whole batch instead of a process's share. With several
processes, the last batch of an epoch is padded with rows without labels, so that shares are equal and the loss does not change.
An epoch's order is drawn from torch's global generator, so a checkpoint holds the generator's state at the start of the epoch.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

import torch
from transformers.trainer_pt_utils import LengthGroupedSampler


class Order(LengthGroupedSampler):
    """Indices of rows, an epoch of them.

    Args:
        lengths: of the rows, in tokens.
        batch_size: over all processes.
        filler: index of the row that pads the last batch; None: the last batch is smaller.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, filler: int | None = None) -> None:
        super().__init__(batch_size, lengths=list(lengths))
        self._fillers = [] if filler is None else [filler] * (-len(lengths) % batch_size)
        self._begin: torch.Tensor | None = None
        self._is_restored = False

    def __len__(self) -> int:
        return len(self.lengths) + len(self._fillers)

    def __iter__(self) -> Iterator[int]:
        if self._is_restored and self._begin is not None:
            torch.set_rng_state(self._begin)
        self._is_restored, self._begin = False, torch.get_rng_state()
        yield from super().__iter__()
        yield from self._fillers
        self._begin = None

    def state(self) -> str | None:
        """State of the generator at the start of this epoch; None between epochs."""
        return None if self._begin is None else base64.b85encode(self._begin.numpy().tobytes()).decode()

    def restore(self, state: str | None) -> None:
        """Repeats the epoch of `state`. For a state of None, the caller restores the generator."""
        self._begin = None if state is None else torch.frombuffer(bytearray(base64.b85decode(state)), dtype=torch.uint8)
        self._is_restored = True
