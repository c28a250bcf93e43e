"""What policies are worth that know nothing of a task (`synth/tasks/exploits.py`), on admitted tasks of all worlds: it should be nothing.

One idea: admission is not asked again. Each trick plays a conversation as a policy does (`synth/rollouts/episode.py`), in a world of its
own, and the conversation is judged with every call replayed (`synth.tasks.verify.verify`); neither success nor any part of the graded
reward may come of it. The tricks are not told what the task wants, so those too are played that admission leaves out as hopeless. A refusal
task is lost on who refuses everything for its one reason: there `always_refuse` counts apart, as the share of refusal tasks that the best
single reason passes.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.harness import Deadline, Figures, Section
from synth.worlds import WORLDS

if TYPE_CHECKING:
    from storage.records import Call, Language, Message, Task
    from synth.engines.base import ChatAnswer
    from synth.worlds.base import Intent

TASKS = {
    "city": 1_200,
    "retail": 1_200,
    **dict.fromkeys(("banking", "clinic", "helpdesk", "hotel", "library", "logistics", "school", "telecom"), 240),
    **dict.fromkeys((f"gen-{number}" for number in range(1, 13)), 160),
}
"""Of a world, so that each of its intents is drawn, in both languages."""
LEAST = 5_000
TRIES = 200
SEED = 0
OPTIONAL_SHARE = 0.3
CONTINUED_SHARE = 0.25
OPENING = 2
"""Messages of a conversation's beginning at most: a system prompt and a request."""
MAX_TURNS = 32
"""More than any trick takes."""
HACKED = frozenset({"reward_hack", "idle_passes"})
"""Why a task was refused that a trick or an idle policy passes."""


def sections() -> list[Section]:
    keys = ("trivial_policies_passed", "always_refuse_rate", "trivial_tasks", "trivial_not_admitted_share")
    return [Section("trivial policies", keys, measure, minutes=10)]


@dataclass(slots=True)
class Tally:
    """tasks, refusals: tried. played: conversations by trick. passed: ids of the tasks that are solved, with the tricks that do. refused:
    refusal tasks by the reason that passes them."""

    tasks: int = 0
    refusals: int = 0
    played: Counter[str] = field(default_factory=Counter)
    passed: list[tuple[str, str]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def solved(self) -> int:
        return len(self.passed)

    @property
    def refuse_rate(self) -> float:
        """0 where there was no refusal task."""
        return max(self.refused.values(), default=0) / max(1, self.refusals)

    def add(self, task: Task) -> None:
        from synth.tasks.exploits import ALWAYS_REFUSE
        from synth.text.refusals import refusal_reasons

        played = scores(task)
        worth = [(name, answer) for name, answer, score in played if score > 0]
        is_refusal = task.success.refusal is not None
        tricks = [name for name, _ in worth if not (is_refusal and name == ALWAYS_REFUSE)]
        self.tasks += 1
        self.played.update(name for name, _, _ in played)
        self.refusals += is_refusal
        if is_refusal:
            self.refused.update({reason for name, answer in worth if name == ALWAYS_REFUSE for reason in refusal_reasons(answer)})
        if tricks:
            self.passed.append((task.id, ", ".join(dict.fromkeys(tricks))))


def measure(_: Deadline) -> Figures:
    tally, refused = Tally(), Counter[str]()
    for world, count in TASKS.items():
        before = tally.tasks, tally.refusals
        for task in draw(world, count, refused):
            tally.add(task)
        print(f"    {world}: {tally.tasks - before[0]} tasks, {tally.refusals - before[1]} of them refusals", flush=True)
    if tally.tasks < LEAST:
        raise ValueError(f"only {tally.tasks} tasks were admitted; {LEAST} are wanted")
    print(f"    not admitted: {dict(refused)}; conversations: {dict(tally.played)}", flush=True)
    print(f"    solved: {tally.passed[:10]}; refusals passed, by reason: {dict(tally.refused)}", flush=True)
    hacked = sum(refused[reason] for reason in HACKED)
    return {
        "trivial_policies_passed": tally.solved,
        "always_refuse_rate": tally.refuse_rate,
        "trivial_tasks": tally.tasks,
        "trivial_not_admitted_share": hacked / (hacked + tally.tasks),
    }


# ---- tasks ---------------------------------------------------------------------------------------------------------------------


def draw(world: str, count: int, refused: Counter[str]) -> Iterator[Task]:
    """Admitted tasks of a world: intents in turn, then the other language; `refused` counts by reason what was not admitted.

    A share is asked for after an earlier request that was served by calls: there, and only there, a last call can be repeated.
    """
    from synth.tasks.solver import NotAdmitted
    from synth.worlds import WORLDS

    rng = random.Random(f"{SEED}/{world}")
    intents = WORLDS[world].jobs()
    served: Task | None = None
    for number in range(count):
        language = ("en", "zh")[number // len(intents) % 2]
        for _ in range(TRIES):
            try:
                task = _admitted(world, intents[number % len(intents)], language, rng, served if rng.random() < CONTINUED_SHARE else None)
            except NotAdmitted as failure:
                refused[failure.reason] += 1
                continue
            if task.plan.calls and not task.success.changes and len(task.messages) <= OPENING:
                served = task
            yield task
            break


def _admitted(world: str, intent: Intent, language: Language, rng: random.Random, served: Task | None) -> Task:
    """A task that is drawn at random; served: one of that world which has been done before in the same conversation.

    Raises:
        NotAdmitted: it is none.
    """
    from storage.records import Frame, Message
    from synth.tasks.solver import admit, expert_messages
    from synth.tasks.wording import render
    from synth.worlds import make_world

    seed = served.world_seed if served else rng.randrange(2**20)
    names = frozenset(slot.name for slot in intent.slots if slot.is_required or rng.random() < OPTIONAL_SHARE)
    frame = Frame(world=world, intent=intent.name, slots=make_world(world, seed).draw_slots(intent.name, names, rng))
    text = render(WORLDS[frame.world], frame, language, rng)
    opening = (*expert_messages(WORLDS[served.world], served), Message(role="user", content=text)) if served else None
    return admit(WORLDS[frame.world], frame, text=text, language=language, seed=seed, division="held_out", messages=opening)


# ---- tricks as policies --------------------------------------------------------------------------------------------------------


def scores(task: Task) -> list[tuple[str, str, float]]:
    """(name of a trick, what it answers, what that is worth) of every trick."""
    from storage.records import Success
    from synth.tasks.exploits import exploits
    from synth.tasks.solver import execute
    from synth.worlds import make_world

    def look(calls: Sequence[Call]) -> Sequence[Message]:
        return execute(make_world(task.world, task.world_seed), task.messages, calls, "").messages[len(task.messages) :]

    unaware = task.model_copy(update={"success": Success()})
    return [(name, answer, score(task, calls, answer)) for name, calls, answer in exploits(WORLDS[unaware.world], unaware, look)]


def score(task: Task, calls: Sequence[Call], answer: str) -> float:
    """What a policy is worth that makes these calls and gives this answer: the graded reward that it is given, or that every call replayed
    gives, and 1 for a success, whichever is most."""
    from synth.rollouts.episode import Episode
    from synth.tasks.verify import verify

    episode = Episode(task, 0, MAX_TURNS, WORLDS[task.world])
    for index, call in enumerate(calls):
        episode.step(_calling(index, call))
    episode.step(_saying(answer))
    if episode.outcome is None or not episode.outcome.is_rated:
        raise ValueError(f"a trick's conversation on task {task.id} came to no verdict: {episode.failure}")
    verdict = verify(WORLDS[task.world], task, episode.messages)
    return max(episode.reward or 0.0, verdict.reward, float(verdict.success))


def _calling(index: int, call: Call) -> ChatAnswer:
    from storage.records import FunctionCall, Message, ToolCall
    from synth.engines.base import ChatAnswer

    made = FunctionCall(name=call.tool, arguments=json.dumps(call.arguments, ensure_ascii=False))
    return ChatAnswer(Message(role="assistant", tool_calls=(ToolCall(id=f"trick_{index}", function=made),)), "tool_calls")


def _saying(answer: str) -> ChatAnswer:
    from storage.records import Message
    from synth.engines.base import ChatAnswer

    return ChatAnswer(Message(role="assistant", content=answer), "stop")
