"""What the verdict over BFCL's multi-turn cases is worth: its reference conversations, and the same broken in known ways.

One broken conversation a case and kind: a call is left out, an argument gets another value that this argument takes in another case, two
calls of a turn that follow each other change places, a call is made again right away, or a tool that is not on offer is called. As in
`audits/mutations.py`, one counts where it makes a difference: an altered or swapped call if the end state or what a call is answered
changes, a duplicated one if the state changes a second time, the others always.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.harness import Deadline, Figures, Section
from storage.records import JSON, Call, canonical_json
from synth.worlds.bfcl_world import BFCLWorld, Case, cases, judge_conversation

SEED = 0
MAX_TRIES = 30
Made = list[list[Call]]
Values = Mapping[tuple[str, str], Sequence[JSON]]
KEYS = {
    "hallucinated": "bfcl_hallucinated_refused",
    "duplicated": "bfcl_duplicated_refused",
    "altered": "bfcl_altered_refused",
    "dropped": "bfcl_dropped_refused",
    "swapped": "bfcl_swaps_refused",
}


def sections() -> list[Section]:
    return [Section("bfcl", ("bfcl_accepted", *KEYS.values()), measure, minutes=3)]


def measure(_: Deadline) -> Figures:
    every = cases()
    accepted = sum(all(judge_conversation(case, [turn.calls for turn in case.turns]).values()) for case in every)
    print(f"    {accepted} of {len(every)} reference conversations accepted", flush=True)
    values = argument_values(every)
    tried: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for case in every:
        for kind in MUTATORS:
            made = damaged(case, kind, values)
            if made is not None:
                tried[kind] += 1
                refused[kind] += not all(judge_conversation(case, made).values())
    for kind in MUTATORS:
        print(f"    {kind}: {refused[kind]} of {tried[kind]} refused", flush=True)
    return {"bfcl_accepted": accepted / len(every)} | {key: refused[kind] / tried[kind] for kind, key in KEYS.items()}


def damaged(case: Case, kind: str, values: Values) -> Made | None:
    """The reference's calls by turn, damaged in this way such that it counts; None if no call of it can be."""
    rng = random.Random(f"{SEED}/{case.id}/{kind}")
    return next((made for made in _tries(case, MUTATORS[kind], rng, values) if _counts(case, kind, made)), None)


def argument_values(every: Sequence[Case]) -> Values:
    """By tool and argument, the values that it takes anywhere, in a fixed order."""
    found: dict[tuple[str, str], dict[str, JSON]] = defaultdict(dict)
    for call in (call for case in every for turn in case.turns for call in turn.calls):
        for name, value in call.arguments.items():
            found[call.tool, name].setdefault(canonical_json(value), value)
    return {key: [values[text] for text in sorted(values)] for key, values in found.items()}


# ---- mutations -----------------------------------------------------------------------------------------------------------------

Mutate = Callable[[Made, int, int, random.Random, Values], Made | None]
"""(the reference's calls by turn, a turn, a call in it, ...) -> the broken conversation, if this call can be broken so."""


def _tries(case: Case, mutate: Mutate, rng: random.Random, values: Values) -> Iterator[Made]:
    made = [list(turn.calls) for turn in case.turns]
    places = [(turn, at) for turn, calls in enumerate(made) for at in range(len(calls))]
    for turn, at in rng.sample(places, min(MAX_TRIES, len(places))):
        broken = mutate([list(calls) for calls in made], turn, at, rng, values)
        if broken is not None:
            yield broken


def _hallucinated(made: Made, turn: int, at: int, rng: random.Random, _: Values) -> Made:
    made[turn].insert(at, Call(tool=f"{made[turn][at].tool}_{rng.choice(('all', 'now', 'v2'))}", arguments={}))
    return made


def _duplicated(made: Made, turn: int, at: int, _: random.Random, __: Values) -> Made:
    made[turn].insert(at, made[turn][at])
    return made


def _dropped(made: Made, turn: int, at: int, _: random.Random, __: Values) -> Made:
    del made[turn][at]
    return made


def _swapped(made: Made, turn: int, at: int, _: random.Random, __: Values) -> Made | None:
    calls = made[turn]
    if at + 1 == len(calls) or calls[at] == calls[at + 1]:
        return None
    calls[at], calls[at + 1] = calls[at + 1], calls[at]
    return made


def _altered(made: Made, turn: int, at: int, rng: random.Random, values: Values) -> Made | None:
    call = made[turn][at]
    if not call.arguments:
        return None
    name = rng.choice(sorted(call.arguments))
    others = [value for value in values[call.tool, name] if value != call.arguments[name]]
    if not others:
        return None
    made[turn][at] = call.model_copy(update={"arguments": call.arguments | {name: rng.choice(others)}})
    return made


MUTATORS: Mapping[str, Mutate] = {
    "hallucinated": _hallucinated,
    "duplicated": _duplicated,
    "altered": _altered,
    "dropped": _dropped,
    "swapped": _swapped,
}


# ---- whether one counts --------------------------------------------------------------------------------------------------------


def _counts(case: Case, kind: str, made: Made) -> bool:
    if kind in ("hallucinated", "dropped"):
        return True
    if kind == "duplicated":
        return _changes_twice(case, made)
    (expected, end), (answers, own_end) = _run(case, [list(turn.calls) for turn in case.turns]), _run(case, made)
    if kind == "altered":
        return end != own_end or [answer for _, answer in expected] != [answer for _, answer in answers]
    return end != own_end or Counter(expected) != Counter(answers)


def _run(case: Case, made: Made) -> tuple[list[tuple[str, str]], JSON]:
    """Every call with what it is answered, and the end state."""
    world = BFCLWorld(case)
    every = [call for calls in made for call in calls]
    return [(canonical_json([call.tool, call.arguments]), world.call(call.tool, call.arguments).content) for call in every], world.state()


def _changes_twice(case: Case, made: Made) -> bool:
    """Whether the call that follows its like changes the state."""
    world, last = BFCLWorld(case), None
    for calls in made:
        for call in calls:
            before = world.state()
            world.call(call.tool, call.arguments)
            if call == last and world.state() != before:
                return True
            last = call
    return False
