"""Audit of the verifier: break expert trajectories in known ways, run them again for real, and count how many are refused.

One idea: a mutated trajectory is executed in the task's start state and judged as a policy's would be, by outcome and grounding alone, with
the expert's original answer (except `noop` and `pasted`). A mutation counts only where it makes a difference, so that what is accepted is a
miss of the verifier or a case in which another way really leads to the goal (two rows seen from the wrong end).

| kind | what is done | counts when |
|---|---|---|
| dropped | one call is left out | always |
| altered | an argument gets another value that this argument takes elsewhere | the state or an observation changes |
| swapped | two calls change places | the end state, or what a call is answered, changes |
| duplicated | a call is made again right away | the state changes a second time |
| hallucinated | a call of an unknown tool, or a grounded argument that nobody has said | always |
| noop | no call, no text | always |
| pasted | the answer is everything observed: as it came, or only the values in it | facts are asked for |

`pasted` asks what an answer is worth that says everything: a fact without rivals cannot tell it from a good one. As it came it is refused
for its form; the values alone only where they hold a rival. So its figure says how much of the answers is checked, and nothing is demanded.

Use it on your own worlds: `audit(tasks, rng, per_kind=1000)`.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from storage.records import JSON, Call, Frame, Language, Task, canonical_json, leaves
from synth.tasks.solver import Executed, NotAdmitted, admit, execute
from synth.tasks.verify import judge
from synth.tasks.wording import render
from synth.text.claims import has_word, normalise
from synth.worlds import WORLDS
from synth.worlds.base import Intent, World

KINDS = ("dropped", "altered", "swapped", "duplicated", "hallucinated", "noop", "pasted")
_TRIES_A_VISIT = 4
_EXAMPLES = 20
_DRAW_TRIES = 200
_LANGUAGES: tuple[Language, Language] = ("en", "zh")

Calls = tuple[Call, ...]


@dataclass(slots=True)
class Tally:
    """Mutations that counted, how many of them were refused, and the first few that were accepted (task id and calls)."""

    tried: int = 0
    refused: int = 0
    accepted: list[tuple[str, str]] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Share refused; 0 where none was tried."""
        return self.refused / self.tried if self.tried else 0.0


@dataclass(frozen=True, slots=True)
class Audit:
    """kinds: tallies by kind of mutation. experts, experts_accepted: unmutated plans, and how many of them passed."""

    kinds: dict[str, Tally]
    experts: int
    experts_accepted: int

    def figures(self) -> dict[str, float]:
        """The audit as rates: `<kind>_refused`, `expert_accepted`, and `mutations_tried` in all."""
        rates = {f"{'swaps' if kind == 'swapped' else kind}_refused": tally.rate for kind, tally in self.kinds.items()}
        tried = sum(tally.tried for tally in self.kinds.values())
        return {"mutations_tried": tried, "expert_accepted": self.experts_accepted / self.experts if self.experts else 0.0, **rates}


@dataclass(frozen=True, slots=True)
class _Subject:
    """A task with its world in the start state, its executed plan, and what every argument may be replaced by."""

    task: Task
    world: World
    start: object
    expert: Executed
    values: Mapping[tuple[str, str, str], Sequence[JSON]]

    def run(self, calls: Calls, answer: str) -> Executed:
        done = execute(self.world, self.task.messages, calls, answer)
        self.world.restore(self.start)
        return done


def draw_tasks(world: type[World], count: int, rng: random.Random) -> list[Task]:
    """`count` admitted tasks of a world: intents in turn, optional slots at random, both languages in turn, all wordings.

    Raises:
        NotAdmitted: an intent gave no task in 200 tries.
    """
    tasks: list[Task] = []
    intents = list(world.jobs())
    while len(tasks) < count:
        intent, language = intents[len(tasks) % len(intents)], _LANGUAGES[len(tasks) // len(intents) % 2]
        tasks.append(_draw_task(world, intent, language, rng))
    return tasks


def _draw_task(world: type[World], intent: Intent, language: Language, rng: random.Random) -> Task:
    failure = NotAdmitted("no_tries")
    for _ in range(_DRAW_TRIES):
        seed = rng.randrange(2**20)
        names = frozenset(slot.name for slot in intent.slots if slot.is_required or rng.random() < 0.3)
        frame = Frame(world=world.name, intent=intent.name, slots=world(seed).draw_slots(intent.name, names, rng))
        try:
            return admit(world, frame, text=render(world, frame, language, rng), language=language, seed=seed, division="held_out")
        except NotAdmitted as refused:
            failure = refused
    raise failure


def audit(tasks: Sequence[Task], rng: random.Random, per_kind: int, *, progress: Callable[[str, int, int], None] | None = None) -> Audit:
    """Mutates the plans of the tasks, round after round in random order, until every kind has `per_kind` different mutations that count
    (`noop`: one a task; `pasted`: two a task), or is exhausted: a whole round found no new one."""
    tallies = {kind: Tally() for kind in KINDS}
    accepted, seen, values = 0, set[tuple[str, str, str]](), _values(tasks)
    open_kinds, is_first = list(_MAKERS), True
    while is_first or open_kinds:
        before = {kind: tallies[kind].tried for kind in open_kinds}
        for number, task in enumerate(_in_turn(tasks, rng)):
            subject = _subject(task, values)
            if is_first:
                accepted += judge(type(subject.world), task, subject.expert.messages, subject.expert.changes).success
                _count(tallies["noop"], subject, (), "")
                for answer in _pasted(subject) if tallies["pasted"].tried < per_kind else ():
                    _count(tallies["pasted"], subject, task.plan.calls, answer)
            for kind in open_kinds:
                if tallies[kind].tried < per_kind:
                    _visit(kind, tallies[kind], subject, rng, seen)
            if progress is not None and number % 100 == 0:
                progress("mutations", sum(tally.tried for tally in tallies.values()), per_kind * (len(_MAKERS) + 1) + len(tasks))
        open_kinds = [kind for kind in open_kinds if before[kind] < tallies[kind].tried < per_kind]
        is_first = False
    return Audit(tallies, len(tasks), accepted)


def _in_turn(tasks: Sequence[Task], rng: random.Random) -> Iterator[Task]:
    """The tasks in random order, worlds in turn, so that a large world does not crowd out a small one."""
    worlds = [[task for task in tasks if task.world == world] for world in sorted({task.world for task in tasks})]
    for group in worlds:
        rng.shuffle(group)
    return (task for turn in itertools.zip_longest(*worlds) for task in turn if task is not None)


def _subject(task: Task, values: Mapping[tuple[str, str, str], Sequence[JSON]]) -> _Subject:
    world = WORLDS[task.world](task.world_seed)
    start = world.snapshot()
    expert = execute(world, task.messages, task.plan.calls, task.plan.answer)
    world.restore(start)
    return _Subject(task, world, start, expert, values)


def _visit(kind: str, tally: Tally, subject: _Subject, rng: random.Random, seen: set[tuple[str, str, str]]) -> None:
    """Tries a few mutations of one kind, until one counts that was not made before."""
    for _ in range(_TRIES_A_VISIT):
        calls = _MAKERS[kind](subject, rng)
        if calls is None:
            return
        key = (kind, subject.task.id, canonical_json([call.model_dump() for call in calls]))
        if key in seen:
            continue
        seen.add(key)
        if kind in _COUNTS and not _COUNTS[kind](subject, subject.run(calls, subject.task.plan.answer)):
            continue
        _count(tally, subject, calls, subject.task.plan.answer)
        return


def _count(tally: Tally, subject: _Subject, calls: Calls, answer: str) -> None:
    done = subject.run(calls, answer)
    tally.tried += 1
    if not judge(type(subject.world), subject.task, done.messages, done.changes).success:
        tally.refused += 1
    elif len(tally.accepted) < _EXAMPLES:
        tally.accepted.append((subject.task.id, json.dumps([call.model_dump() for call in calls], ensure_ascii=False)))


def _pasted(subject: _Subject) -> list[str]:
    """Everything that the expert observed, as an answer: as it came, and only the values in it."""
    observed = [message.content or "" for message in subject.expert.messages if message.role == "tool"]
    if not observed or not subject.task.success.facts:
        return []
    values = (str(value) for content in observed for _, value in leaves(json.loads(content)))
    return ["\n".join(observed), "; ".join(values)]


# ---- when a mutation counts -----------------------------------------------------------------------------------------------------


def _answers(done: Executed) -> list[tuple[str, str]]:
    """(call, its observation) in the order in which they were made."""
    calls = [call for message in done.messages for call in message.tool_calls]
    results = [message.content or "" for message in done.messages if message.role == "tool"]
    return [(f"{call.function.name} {call.function.arguments}", result) for call, result in zip(calls, results, strict=True)]


def _differs(subject: _Subject, done: Executed) -> bool:
    return done.changes != subject.expert.changes or [row[1] for row in _answers(done)] != [row[1] for row in _answers(subject.expert)]


def _differs_by_call(subject: _Subject, done: Executed) -> bool:
    return done.changes != subject.expert.changes or sorted(_answers(done)) != sorted(_answers(subject.expert))


def _changes_more(subject: _Subject, done: Executed) -> bool:
    return done.changes != subject.expert.changes


_COUNTS: Mapping[str, Callable[[_Subject, Executed], bool]] = {
    "altered": _differs,
    "swapped": _differs_by_call,
    "duplicated": _changes_more,
}


# ---- mutations ------------------------------------------------------------------------------------------------------------------


def _drop(subject: _Subject, rng: random.Random) -> Calls | None:
    calls = subject.task.plan.calls
    if not calls:
        return None
    index = rng.randrange(len(calls))
    return (*calls[:index], *calls[index + 1 :])


def _swap(subject: _Subject, rng: random.Random) -> Calls | None:
    calls = list(subject.task.plan.calls)
    if len(calls) < 2:
        return None
    left, right = rng.sample(range(len(calls)), 2)
    calls[left], calls[right] = calls[right], calls[left]
    return tuple(calls)


def _duplicate(subject: _Subject, rng: random.Random) -> Calls | None:
    calls = subject.task.plan.calls
    changing = {tool.name for tool in subject.world.tools if tool.changes_state}
    places = [index for index, call in enumerate(calls) if call.tool in changing]
    if not places:
        return None
    index = rng.choice(places)
    return (*calls[: index + 1], *calls[index:])


def _alter(subject: _Subject, rng: random.Random) -> Calls | None:
    places = [(index, name) for index, call in enumerate(subject.task.plan.calls) for name in call.arguments]
    if not places:
        return None
    index, name = rng.choice(places)
    call = subject.task.plan.calls[index]
    value = call.arguments[name]
    others = [
        other
        for other in subject.values[subject.task.world, call.tool, name]
        if other not in (value if isinstance(value, list) else [value])
    ]
    if not others:
        return subject.task.plan.calls
    return _with_argument(subject, index, name, _in_place(value, rng.choice(others), rng))


def _hallucinate(subject: _Subject, rng: random.Random) -> Calls | None:
    calls = subject.task.plan.calls
    places = list(_grounded_places(subject))
    if not places or rng.random() < 0.5:
        index = rng.randrange(len(calls) + 1)
        made_up = Call(tool=f"{rng.choice(('fetch', 'update', 'delete', 'confirm'))}_{rng.choice(('record', 'account', 'ticket', 'data'))}")
        if rng.random() < 0.5 and index < len(calls):
            made_up = made_up.model_copy(update={"arguments": calls[index].arguments})
            return (*calls[:index], made_up, *calls[index + 1 :])
        return (*calls[:index], made_up, *calls[index:])
    index, name = rng.choice(places)
    value = calls[index].arguments[name]
    said = [normalise(message.content or "") for message in subject.expert.messages]
    said += [normalise(form) for form in subject.world.slot_forms(subject.task.intent, subject.task.slots)]
    pool = subject.values[subject.task.world, calls[index].tool, name]
    coined = [
        other
        for other in rng.sample(pool, min(8, len(pool)))
        if isinstance(other, str) and not any(has_word(text, normalise(other)) for text in said)
    ]
    return _with_argument(subject, index, name, _in_place(value, coined[0] if coined else _unheard(value, rng), rng))


def _unheard(value: JSON, rng: random.Random) -> JSON:
    """A value of the same type that nobody has said."""
    number = rng.randrange(10**6, 10**7)
    return number + 0.25 if isinstance(value, float) else number if isinstance(value, int) else f"x{number}"


def _in_place(value: JSON, other: JSON, rng: random.Random) -> JSON:
    """`other` in the place of `value`, or of one item of it."""
    if not isinstance(value, list) or not value:
        return other
    index = rng.randrange(len(value))
    return [*value[:index], other, *value[index + 1 :]]


def _with_argument(subject: _Subject, index: int, name: str, value: JSON) -> Calls:
    calls = subject.task.plan.calls
    changed = calls[index].model_copy(update={"arguments": {**calls[index].arguments, name: value}})
    return (*calls[:index], changed, *calls[index + 1 :])


def _grounded_places(subject: _Subject) -> Iterator[tuple[int, str]]:
    properties = {tool.name: tool.parameters["properties"] for tool in subject.world.tools}
    for index, call in enumerate(subject.task.plan.calls):
        for name in call.arguments:
            if properties[call.tool][name].get("x-grounded"):
                yield index, name


def _values(tasks: Sequence[Task]) -> dict[tuple[str, str, str], list[JSON]]:
    """What each argument (world, tool, name) may be: the values of its schema, and those that it takes in the tasks' plans (items of
    lists one by one), in a fixed order."""
    found: dict[tuple[str, str, str], dict[str, JSON]] = {}
    for world in sorted({task.world for task in tasks}):
        for tool in WORLDS[world].tools:
            for name, schema in tool.parameters["properties"].items():
                inner = schema.get("items", schema)
                listed = [True, False] if inner.get("type") == "boolean" else inner.get("enum", [])
                found[world, tool.name, name] = {canonical_json(value): value for value in listed}
    for task in tasks:
        for call in task.plan.calls:
            for name, value in call.arguments.items():
                pool = found[task.world, call.tool, name]
                pool.update({canonical_json(item): item for item in (value if isinstance(value, list) else [value])})
    return {key: [pool[text] for text in sorted(pool)] for key, pool in found.items()}


_MAKERS: Mapping[str, Callable[[_Subject, random.Random], Calls | None]] = {
    "dropped": _drop,
    "altered": _alter,
    "swapped": _swap,
    "duplicated": _duplicate,
    "hallucinated": _hallucinate,
}
