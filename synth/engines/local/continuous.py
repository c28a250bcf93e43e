"""Conversations that join, wait for their tools and leave at any time, over one model in this process.

One idea: a step samples one token for every conversation that does not wait. So a slow tool holds up its own conversation alone, and new
conversations take the slots of finished ones in the middle of the others' answers.
New weights take effect at the next token. The tokens so far stay, each with the log-probability and the version of the weights that it
was sampled with; the caches are computed again, because they depend on the weights.

What it does not do: call tools, or keep a fixed order: which conversations share a step depends on their tools' speed, and with it the
last bits of the products. `HFEngine.converse` is the deterministic form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from storage.records import Message
from synth.engines.base import ChatAnswer, ChatRequest
from synth.engines.local.hf import HFEngine, OpenConversation, evaluating


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer of the conversation `key`. versions: of the weights that sampled each of its tokens."""

    key: str
    answer: ChatAnswer
    versions: tuple[int, ...]


@dataclass(slots=True)
class _Slot:
    """A conversation in its slot. fed: tokens of it in the caches. waits: whether an answer has ended and nothing has come after it."""

    key: str
    row: OpenConversation
    fed: int = 0
    waits: bool = False
    versions: list[int] = field(default_factory=list)


class ContinuousBatch:
    """The open conversations of one engine; no other caller may use the engine meanwhile.

    Args:
        slots: most conversations that are open at once; fewer if their caches would not fit (`HFEngine.batch_rows`).
    """

    def __init__(self, engine: HFEngine, slots: int) -> None:
        self._engine, self._version = engine, 0
        self.slots = min(slots, engine.batch_rows)
        engine.decoder.allocate(self.slots, engine.max_length)
        self._taken: dict[int, _Slot] = {}
        self._place: dict[str, int] = {}

    @property
    def free(self) -> int:
        """Slots without a conversation."""
        return self.slots - len(self._taken)

    @property
    def is_idle(self) -> bool:
        """Whether no conversation can go on: there is none, or all wait."""
        return all(slot.waits for slot in self._taken.values())

    def use_weights(self, version: int) -> None:
        """Samples the next tokens with the weights that the model has now. version: their number, for `Answered.versions`."""
        self._version = version
        self._engine.decoder.load_weights()
        for place, slot in self._taken.items():
            slot.fed = 0
            if slot.waits:  # read when it goes on
                self._engine.decoder.free(place)

    def join(self, key: str, request: ChatRequest, after: Sequence[tuple[ChatAnswer, Sequence[Message]]] = ()) -> bool:
        """Opens a conversation in a free slot. False: its tokens fill the model's window, so it has no slot and is over.

        request: with the opening messages. after: its answers so far, each with the messages that followed, if it began elsewhere; it goes
        on after the very tokens that were sampled.
        """
        row = self._engine.open(request)
        if after:
            answer, more = after[-1]
            row.known = [*answer.prompt_ids, *answer.token_ids]
            row.calls += sum(len(earlier.message.tool_calls) for earlier, _ in after[:-1])
            self._engine.go_on(row, answer.message, more)
        if row.is_over:
            return False
        place = next(number for number in range(self.slots) if number not in self._taken)
        self._taken[place], self._place[key] = _Slot(key, row), place
        return True

    def step(self) -> list[Answered]:
        """Samples a token for each conversation that does not wait; the answers that have ended, whose conversations now wait."""
        with torch.inference_mode(), evaluating(self._engine.model):
            ready = [(place, slot) for place, slot in self._taken.items() if not slot.waits]
            if not ready:
                return []
            self._sample(ready)
        answered = []
        for _, slot in ready:
            if (answer := self._engine.answer_of(slot.row)) is not None:
                slot.waits = True
                answered.append(Answered(slot.key, answer, tuple(slot.versions)))
        return answered

    def reply(self, key: str, answer: ChatAnswer, more: Sequence[Message]) -> bool:
        """Adds the messages after an answer. False: they fill the window; the conversation is over and has left."""
        slot = self._taken[self._place[key]]
        self._engine.go_on(slot.row, answer.message, more)
        if slot.row.is_over:
            self.leave(key)
            return False
        slot.waits, slot.versions = False, []
        return True

    def suffix_ids(self, answer: Message, more: Sequence[Message]) -> list[int]:
        """The tokens between an answer and the next one."""
        return self._engine.chat_format.suffix_ids(answer, more)

    def leave(self, key: str) -> None:
        """Frees the slot of a conversation."""
        place = self._place.pop(key)
        del self._taken[place]
        self._engine.decoder.free(place)

    def _sample(self, ready: Sequence[tuple[int, _Slot]]) -> None:
        new = [(place, slot) for place, slot in ready if slot.fed == 0]
        known = [(place, slot) for place, slot in ready if slot.fed]
        for slots, feed in ((new, self._engine.decoder.read), (known, self._engine.decoder.feed)):
            if slots:
                chunks = [slot.row.known[slot.fed :] for _, slot in slots]
                hidden = feed([place for place, _ in slots], chunks)
                for _, slot in slots:
                    slot.fed = len(slot.row.known)
                    slot.versions.append(self._version)
                self._engine.sample([slot.row for _, slot in slots], hidden)
