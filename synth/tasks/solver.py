"""From a frame to an admitted task: solve it, execute the expert plan, and refuse a task that can be passed by luck.

Conditions of admission, for every task:

- the goal does not hold at the start;
- the executed expert plan passes `verify.judge`;
- the request determines the plan: every argument is said, looked up by a key, or a default (`determined.py`);
- doing nothing fails, with an empty text and, if the plan has calls, with the expert's answer;
- every policy of `exploits.py` has a reward of exactly 0;
- the plan is minimal: with any one call dropped, the rest fails.

The plan of a refusal task is its answer, after the lookups that the refusal needs, if any.

A sibling of a frame has the same intent and other individuals, in a world of another seed. Two things are set aside for evaluation: world
seeds that are 3 modulo 4, and a quarter of the combinations of individuals, chosen by hash. `sibling` with `use="train"` draws none of
them; with any other use it draws only them. `admit` draws nothing: its caller chooses the seed and the individuals. Drills, which call it,
take seeds of their use, but any individuals.

It does not word requests (`wording.py`) or rate them (`difficulty.py`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from storage.records import (
    CODE_TOOL,
    JSON,
    Call,
    Division,
    Frame,
    FunctionCall,
    Given,
    Language,
    Message,
    Task,
    ToolCall,
    content_id,
)
from synth.tasks.context_expert import play_plan
from synth.tasks.determined import undetermined
from synth.tasks.difficulty import difficulty
from synth.tasks.exploits import ALWAYS_REFUSE, exploits
from synth.tasks.verify import Verdict, judge, slot_forms
from synth.tasks.wording import render
from synth.worlds.base import NOTHING, Solution, Unsolvable, World

Use = Literal["train", "eval_in", "eval_out"]

SIBLING_SEEDS, DRAWS_PER_SEED = 48, 8
"""World seeds that a sibling tries at most, and draws of individuals in each."""


class NotAdmitted(Exception):
    """A frame gave no task. reason: a short key such as `misfit` or `not_minimal`; the funnel counts it."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Executed:
    """An executed conversation, and the changes of the world's state."""

    messages: tuple[Message, ...]
    changes: dict[str, JSON]


def solve(world: World, frame: Frame, language: Language) -> Solution:
    """The expert plan and success criteria of a frame in a world.

    Raises:
        Unsolvable: the frame does not fit this seed.
    """
    return world.intents[frame.intent].solve(world, frame.slots, language)


def execute(world: World, opening: Sequence[Message], calls: Iterable[Call], answer: str) -> Executed:
    """Executes the calls, one in each assistant message, and ends with the answer. The calls change `world`."""
    messages = list(opening)
    for index, call in enumerate(calls):
        messages += execute_call(world, call, index)
    messages.append(Message(role="assistant", content=answer))
    return Executed(tuple(messages), world.changes())


def execute_call(world: World, call: Call, index: int) -> tuple[Message, Message]:
    """The assistant's message with the conversation's call number `index`, from 0, and its result. The call changes `world`."""
    text = json.dumps(call.arguments, ensure_ascii=False)
    tool_call = ToolCall(id=f"call_{index}", function=FunctionCall(name=call.tool, arguments=text))
    observation = world.call(call.tool, text)
    said = Message(role="assistant", tool_calls=(tool_call,))
    return said, Message(role="tool", content=observation.content, tool_call_id=tool_call.id)


def expert_messages(world: type[World], task: Task) -> list[Message]:
    """The executed expert plan as a conversation, opening included; in the task's context, with what has to be read on."""
    if task.context is not None:
        return list(play_plan(world, task).messages)
    return list(execute(world(task.world_seed, task.given), task.messages, task.plan.calls, task.plan.answer).messages)


def admit(
    kind: type[World],
    frame: Frame,
    *,
    text: str,
    language: Language,
    seed: int,
    division: Division,
    use: Use = "train",
    query_id: str | None = None,
    blueprint_id: str | None = None,
    messages: Sequence[Message] | None = None,
    parent_id: str | None = None,
    offers_code: bool = False,
    given: Given = NOTHING,
) -> Task:
    """The task of a frame, worded as `text`, in the world of `seed`.

    Its id covers all that is stored, the origin too: two queries that ask for the same thing give two tasks.

    Args:
        kind: the world of the frame.
        messages: the opening; None for the world's system prompt and `text`.
        parent_id: id of the frame whose sibling this is; becomes the task's `frame_id`.
        offers_code: `run_python` is a tool of the task though its plan needs no program.
        given: what the world is given beside the seed; as `World.given_for` returns it.

    Raises:
        SandboxError: the plan needs a program, and this machine cannot run it.
        NotAdmitted: the frame does not fit this seed, or a condition of admission does not hold.
    """
    world, solution = _solve_in_seed(kind, frame, language, seed, given)
    opening = tuple(messages) if messages is not None else _opening(world, text)
    has_code = offers_code or any(call.tool == CODE_TOOL for call in solution.plan.calls)
    frame_id = parent_id or frame.id
    made_from = [frame.world, world.version, seed, frame.intent, frame.slots, language, [message.to_openai() for message in opening]]
    made_from += [given] if given else []
    task = Task(
        id=content_id("task", *made_from, frame_id, query_id, blueprint_id, division, use),
        world=frame.world,
        world_seed=seed,
        intent=frame.intent,
        leaf=world.intents[frame.intent].leaf,
        frame_id=frame_id,
        slots=dict(frame.slots),
        language=language,
        messages=opening,
        tools=tuple(tool.name for tool in world.tools if tool.name != CODE_TOOL or has_code),
        plan=solution.plan,
        success=solution.success,
        given={entity: [dict(description) for description in descriptions] for entity, descriptions in given.items()},
        difficulty=-1 if solution.success.refusal is not None else difficulty(kind, frame, text).r,
        query_id=query_id,
        blueprint_id=blueprint_id,
        division=division,
        use=use,
    )
    check_admission(task, world)
    return task


def _solve_in_seed(kind: type[World], frame: Frame, language: Language, seed: int, given: Given) -> tuple[World, Solution]:
    """The world of a seed and the frame's solution there. Raises NotAdmitted if it has none."""
    assert frame.world == kind.name
    world = kind(seed, given)
    if frame.intent not in world.intents:
        raise NotAdmitted("unknown_intent", frame.intent)
    try:
        return world, solve(world, frame, language)
    except Unsolvable as unsolvable:
        raise NotAdmitted(unsolvable.reason, unsolvable.detail) from unsolvable


def check_admission(task: Task, world: World) -> None:
    """Raises NotAdmitted unless the task meets the conditions of admission. `world` is in the task's start state, and is restored to it."""
    kind, start = type(world), world.snapshot()

    def run_and_restore(calls: Sequence[Call], answer: str) -> Executed:
        done = execute(world, task.messages, calls, answer)
        if done.changes:
            world.restore(start)
        return done

    def run(calls: Sequence[Call], answer: str) -> Verdict:
        done = run_and_restore(calls, answer)
        return judge(kind, task, done.messages, done.changes)

    def look(calls: Sequence[Call]) -> Sequence[Message]:
        return run_and_restore(calls, "").messages[len(task.messages) :]

    calls, answer, success = task.plan.calls, task.plan.answer, task.success
    if not (success.changes or success.facts or success.refusal):
        raise NotAdmitted("no_goal", "nothing has to be changed, told or refused")
    expert = run(calls, answer)
    if not expert.success:
        raise NotAdmitted("expert_fails", ", ".join(name for name, holds in expert.checks.items() if not holds))
    if missing := undetermined(kind, task, run_and_restore(calls, answer).messages, slot_forms(kind, task)):
        raise NotAdmitted("undetermined", f"the request does not say {', '.join(missing[:3])}")
    if run((), "").success or (calls and run((), answer).success):
        raise NotAdmitted("idle_passes")
    for name, exploit_calls, exploit_answer in exploits(kind, task, look):
        if run(exploit_calls, exploit_answer).reward > 0 and not (name == ALWAYS_REFUSE and success.refusal):
            raise NotAdmitted("reward_hack", name)
    if len(calls) > 1:
        for index, call in enumerate(calls):
            if run((*calls[:index], *calls[index + 1 :]), answer).success:
                raise NotAdmitted("not_minimal", f"call {index} ({call.tool}) can be dropped")


def admit_any(
    world: type[World],
    frame: Frame,
    *,
    text: str,
    language: Language,
    seeds: Iterable[int],
    division: Division,
    **options: Any,
) -> Task:
    """`admit`, with its options, in the first of the seeds that the frame fits; where it fits none, in a world that is given what it names.

    Raises:
        NotAdmitted: it fits none; the reason is the last seed's.
    """
    failure, seeds = NotAdmitted("no_seeds"), list(seeds)
    given = world.given_for(frame.intent, frame.slots) if frame.intent in world.intents else NOTHING
    for rows in (NOTHING, given) if given else (NOTHING,):
        for seed in seeds:
            try:
                return admit(world, frame, text=text, language=language, seed=seed, division=division, given=rows, **options)
            except NotAdmitted as refused:
                failure = refused
    raise failure


# ---- siblings ---------------------------------------------------------------------------------------------------------------


def is_evaluation_seed(seed: int) -> bool:
    """Whether a world seed is set aside for evaluation."""
    return seed % 4 == 3


def are_evaluation_slots(intent: str, slots: Mapping[str, JSON], entity_names: frozenset[str]) -> bool:
    """Whether a frame's combination of individuals is set aside for evaluation; False if it names none."""
    entities = {name: value for name, value in slots.items() if name in entity_names}
    return bool(entities) and int(content_id("entities", intent, entities)[-8:], 16) % 4 == 3


def training_seed(number: int) -> int:
    """A world seed that is not set aside; different numbers give different seeds."""
    return 4 * number


def draw_seed(rng: random.Random, use: Use) -> int:
    """A world seed of the right kind for `use`."""
    return 4 * rng.randrange(2**28) + rng.choice((0, 1, 2) if use == "train" else (3,))


def world_seeds(frame_id: str, index: int, use: Use, count: int) -> list[int]:
    """The world seeds that sibling `index` of a frame tries, in order: a function of the arguments, of the right kind for `use`."""
    rng = random.Random(content_id("siblings", frame_id, index, use))
    return [draw_seed(rng, use) for _ in range(count)]


def sibling(
    world: type[World],
    frame: Frame,
    *,
    index: int,
    language: Language,
    division: Division,
    use: Use,
    query_id: str | None = None,
    blueprint_id: str | None = None,
    canonical: bool = True,
) -> Task:
    """Sibling `index` of a frame: the draw depends on (frame, index, language, use) alone. Its `frame_id` is that of `frame`.

    Args:
        world: the world of the frame.
        use: `train` draws from training seeds and entities; other uses draw from those that are set aside.
        canonical: only short plain wordings, which a tiny policy can learn; False for all wordings.

    Raises:
        NotAdmitted: no seed gave a task.
    """
    rng = random.Random(content_id("sibling", frame.id, index, language, use))
    failure = NotAdmitted("no_entities_left", "all that were drawn are kept for another use")
    for seed in world_seeds(frame.id, index, use, SIBLING_SEEDS):
        candidate = _draw(frame, world(seed), use, rng)
        if candidate is None:
            continue
        text = render(world, candidate, language, rng, canonical=canonical)
        try:
            return admit_any(
                world,
                candidate,
                text=text,
                language=language,
                seeds=[seed],
                division=division,
                use=use,
                query_id=query_id,
                blueprint_id=blueprint_id,
                parent_id=frame.id,
            )
        except NotAdmitted as refused:
            failure = refused
    raise failure


def _draw(frame: Frame, world: World, use: Use, rng: random.Random) -> Frame | None:
    """The frame with individuals of this world that `use` may see; None if `DRAWS_PER_SEED` draws gave none."""
    entity_names = frozenset(slot.name for slot in world.intents[frame.intent].slots if slot.is_entity)
    has_entities = bool(entity_names & frozenset(frame.slots))
    for _ in range(DRAWS_PER_SEED):
        candidate = Frame(world=frame.world, intent=frame.intent, slots=world.draw_entities(frame.intent, frame.slots, rng))
        if not has_entities or are_evaluation_slots(candidate.intent, candidate.slots, entity_names) == (use != "train"):
            return candidate
    return None


def _opening(world: World, text: str) -> tuple[Message, ...]:
    user = Message(role="user", content=text)
    return (Message(role="system", content=world.system_prompt), user) if world.system_prompt else (user,)
