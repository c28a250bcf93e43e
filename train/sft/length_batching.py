"""In which order SFT takes its rows: batches of rows about as long as each other, the same ones for any number of processes.

One idea: the order is TRL's own for one process (`group_by_length`), grouped by the whole batch and not by a process's share of it. Where
several share a batch, the last one of an epoch is filled up with rows that nothing is learned from, so that the shares stay equal and the
loss that of the rows that are there.
An epoch's order is drawn from torch's global generator. How that stood when the epoch began is what a checkpoint must hold.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

import torch
from transformers.trainer_pt_utils import LengthGroupedSampler


class Order(LengthGroupedSampler):
    """Indices of rows, an epoch of them.

    Args:
        lengths: of the rows, in tokens. batch_size: over all processes. filler: index of the row that fills up the last batch; None: it
            is smaller than the others.
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
        """How the generator stood when this epoch began; None between two."""
        return None if self._begin is None else base64.b85encode(self._begin.numpy().tobytes()).decode()

    def restore(self, state: str | None) -> None:
        """The next epoch is the one that `state` was taken in. Between two, the generator itself must be as it was then."""
        self._begin = None if state is None else torch.frombuffer(bytearray(base64.b85decode(state)), dtype=torch.uint8)
        self._is_restored = True
