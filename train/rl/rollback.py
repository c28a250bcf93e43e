"""Sequential rollback: rollouts start late in the expert's conversation, and earlier as the policy masters the rest.

One idea: a task of K expert turns is first given with K - 1 of them done, then with K - 2, and so on, until it is the whole task. Each step
back adds one turn to what the policy already does well, so some rollouts succeed and there is something to learn from, also where a whole
task never succeeds. `Anchors` holds how many turns are given; tasks of one course (world, intent and tools of the plan) share an anchor,
because RL draws no task twice. A turn is crucial if success from before it is significantly lower than from after it (Wilson's intervals do
not meet); success from after the last turn is certain, because the expert's conversation passes.

The loss of a step is that of RL on the policy's own turns + `rollback_imitation` x the expert's mean negative log-likelihood up to and with
the crucial turn, over the tokens of its turns. The paper's weight of that term contains the policy's probability of the turn, which
vanishes where it is needed; this is the plain likelihood.
What it does not do: several anchors of one course at once (the paper's parallelised initialisation); refresh the expert's conversation
under the current policy; or tasks whose state is not all in their world (`synth/rollouts/expert_prefix.py`): these start at the request.
Source: IPA, in ROME, arXiv 2512.24873, chunk-level initialised resampling and equation 10.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.records import Message, Outcome, Task, Tool
from synth.context.offered_tools import tools_of
from synth.intervals import wilson
from synth.rollouts.expert_prefix import ExpertPrefix, expert_conversation, has_prefixes
from synth.worlds import WORLDS
from train.rl.rollout_batches import Batch

METRICS = ("given_turns", "lessons")
"""Metrics of a step. given_turns: mean over the rollouts of the expert's turns that they started after. lessons: tasks of it that start
at a crucial turn."""
WINDOW = 16
"""Latest rollouts from an anchor that count; as many are made before it moves."""


@dataclass
class _Anchor:
    """given: turns of the expert that the policy goes on from. last: successes of the latest rollouts from there. after: the same from one
    turn later, before the anchor moved."""

    given: int
    last: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    after: list[bool] = field(default_factory=lambda: [True] * WINDOW)

    @property
    def rate(self) -> float:
        return sum(self.last) / len(self.last) if self.last else 0.0

    @property
    def is_crucial(self) -> bool:
        """Whether the turn at the anchor is where the policy fails."""
        return len(self.last) == WINDOW and wilson(sum(self.last), WINDOW)[1] < wilson(sum(self.after), len(self.after))[0]


class Anchors:
    """How many turns of the expert are given, by course. A function of the rollouts that were added, in their order.

    mastered: success rate of the latest rollouts at which an anchor moves a turn back.
    """

    def __init__(self, mastered: float) -> None:
        self._mastered, self._anchors = mastered, dict[str, _Anchor]()

    def given(self, course: str, turns: int) -> int:
        """Turns that are given of a course of this many; all but the last at first."""
        return self._anchors[course].given if course in self._anchors else turns - 1

    def is_crucial(self, course: str) -> bool:
        """Whether the turn that comes first for the policy is the one that it fails at."""
        return course in self._anchors and self._anchors[course].is_crucial

    def add(self, course: str, given: int, successes: Sequence[bool]) -> None:
        """Counts rollouts that started after `given` turns."""
        anchor = self._anchors.setdefault(course, _Anchor(given))
        if given == anchor.given:
            anchor.last.extend(successes)

    def move(self, course: str) -> None:
        """Moves an anchor a turn back if the policy has mastered what follows; at the request it stays."""
        anchor = self._anchors[course]
        if anchor.given and len(anchor.last) == WINDOW and anchor.rate >= self._mastered:
            self._anchors[course] = _Anchor(anchor.given - 1, after=list(anchor.last))

    def state(self) -> dict[str, Any]:
        """All anchors, as JSON."""
        return {course: [one.given, list(one.last), one.after] for course, one in self._anchors.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replaces the anchors by those of a `state`."""
        self._anchors = {course: _Anchor(given, deque(last, WINDOW), list(after)) for course, (given, last, after) in state.items()}


class Rollback:
    """Starts of rollouts at the anchors of their tasks.

    anchors: saved with checkpoints.
    lessons: by task id, the beginning of the expert's conversation that the last batch's step imitates, up to the crucial turn, and the
        tools of its prompt.
    names, metrics: of the last batch, `METRICS`.
    """

    def __init__(self, mastered: float) -> None:
        self.anchors = Anchors(mastered)
        self.lessons: dict[str, tuple[tuple[Message, ...], tuple[Tool, ...]]] = {}
        self.names: Sequence[str] = METRICS
        self.metrics: Mapping[str, float] = {}
        self._played: dict[str, _Played] = {}

    def start(self, task: Task) -> ExpertPrefix | None:
        """Where rollouts of a task start; None: at its request."""
        if not has_prefixes(task) or not task.plan.calls:
            return None
        if task.id not in self._played:
            try:
                kind = WORLDS[task.world]
                self._played[task.id] = _Played(course_of(task), *expert_conversation(kind, task), tools_of(kind, task))
            except Exception:  # a world that fails here fails its rollouts too, and they say how
                return None
        played = self._played[task.id]
        given = self.anchors.given(played.course, len(played.prefixes) + 1)
        return played.prefixes[given - 1] if given else None

    def watch(self, batch: Batch) -> None:
        """Counts the rollouts of a batch, sets its lessons, and moves the anchors."""
        rated = [row for row in (*batch.rows, *batch.left_out) if row.task_id in self._played and row.reward is not None]
        courses = {row.task_id: self._played[row.task_id].course for row in rated}
        for row in rated:
            self.anchors.add(courses[row.task_id], row.given_turns, [row.outcome is Outcome.SUCCESS])
        learned = {row.task_id: row.given_turns for row in batch.rows if self.anchors.is_crucial(courses.get(row.task_id, ""))}
        self.lessons = {task: self._played[task].lesson(given) for task, given in learned.items()}
        for course in dict.fromkeys(courses.values()):
            self.anchors.move(course)
        made = [row.given_turns for row in batch.rows if row.is_made]
        self.metrics = dict(zip(METRICS, (sum(made) / len(made), float(len(self.lessons))), strict=True))
        self._played.clear()


@dataclass(frozen=True)
class _Played:
    """The expert's conversation of a task."""

    course: str
    messages: tuple[Message, ...]
    prefixes: tuple[ExpertPrefix, ...]
    tools: tuple[Tool, ...]

    def lesson(self, given: int) -> tuple[tuple[Message, ...], tuple[Tool, ...]]:
        """The conversation up to and with the turn after `given` ones, and the tools."""
        return [*(prefix.messages for prefix in self.prefixes), self.messages][given], self.tools


def course_of(task: Task) -> str:
    """World, intent and tools of the plan: tasks of one course have the same turns, about other individuals."""
    return f"{task.world}/{task.intent}/{'>'.join(call.tool for call in task.plan.calls)}"
