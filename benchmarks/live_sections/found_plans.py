"""Tasks that are found by execution in five servers that nobody here wrote: how many, of what kinds, and whether they hold.

Of each server, 60 plans that were kept (drawn by lot, one of each kind while they last) are admitted again here, from what the world's
files hold, worded as the pipeline words it: three replays must agree, the expert must pass, an idle policy must not, and the request must
determine the plan.
"""

from __future__ import annotations

import random
from collections import Counter

from benchmarks.harness import ROOT, Deadline, Figures
from benchmarks.live_sections.connecting import measured_server
from benchmarks.live_sections.live_servers import EXPLORED
from storage.records import Frame, Task
from synth.explore.explorer import EXAMPLES, Exploration, Explorer
from synth.tasks.determined import undetermined
from synth.tasks.solver import NotAdmitted, admit, execute, expert_messages
from synth.tasks.verify import judge, slot_forms, verify
from synth.tasks.wording import render
from synth.worlds.live.live_world import LiveWorld, make_live_world
from synth.worlds.live.plans import kind_of

KEYS = (
    "admitted_share", "request_determines_plan_share", "live_idle_passed", "live_replay_mismatches", "kinds_tau2_retail",
    "write_tools_covered_tau2_retail", "multi_call_share", "plans_least", "plans_total", "plans_readmitted_share",
)  # fmt: skip
SECONDS = {"tau2-retail": 300.0, "tau2-airline": 240.0, "filesystem": 60.0, "memory": 60.0, "sqlite": 60.0}
MOST, REPLAYS, HELD = 300, 3, 60
RESULTS = ROOT / "benchmarks" / "results" / "live_plans.md"
MINUTES = 25


def measure_plans(deadline: Deadline) -> Figures:
    figures = dict.fromkeys(KEYS, 0.0)
    tried = admitted = determined = plans = multi = 0
    held: Counter[str] = Counter()
    least: list[int] = []
    pages = ["# Plans found by execution", "", "Written by `make bench live`: five plans of each server, drawn by lot.", ""]
    for name in EXPLORED:
        deadline.allows(SECONDS[name] / 60 + 2)
        measured = measured_server(name)
        bare = make_live_world(measured.spec, measured.lock)
        found = Explorer(bare, seconds=SECONDS[name], most=MOST).run()
        world = make_live_world(measured.spec, measured.lock.model_copy(update={"intents": tuple(found.intents)}))
        tried += found.tried
        admitted += found.admitted
        determined += found.tried - found.refused["undetermined"]
        least.append(found.admitted)
        multi += sum(len(intent.calls) > 1 for intent in found.intents for _ in intent.examples)
        plans += sum(len(intent.examples) for intent in found.intents)
        held += hold(world)
        if name == "tau2-retail":
            figures["kinds_tau2_retail"] = len({kind_of(intent.calls, intent.told) for intent in found.intents})
            figures["write_tools_covered_tau2_retail"] = len(_writers_used(world, found))
        print(f"    {name}: {found.admitted} of {found.tried} admitted, {len(found.intents)} kinds, {dict(found.refused)}", flush=True)
        pages += _examples(name, found)
        bare.pool.close()
        world.pool.close()
    RESULTS.write_text("\n".join(pages) + "\n")
    return figures | {
        "admitted_share": admitted / tried,
        "live_idle_passed": held["idle"],
        "live_replay_mismatches": held["mismatches"],
        "request_determines_plan_share": determined / tried * (1 - held["undetermined"] / held["plans"]),
        "multi_call_share": multi / plans,
        "plans_least": min(least),
        "plans_total": plans,
        "plans_readmitted_share": held["readmitted"] / held["plans"],
    }


def hold(world: type[LiveWorld]) -> Counter[str]:
    """Counts over examples of a world's intents."""
    counts: Counter[str] = Counter()
    rng = random.Random(0)
    shuffled = [(intent.name, rng.sample(intent.examples, len(intent.examples))) for intent in world.lock.intents]
    rng.shuffle(shuffled)
    in_turns = [(name, examples[turn]) for turn in range(EXAMPLES) for name, examples in shuffled if turn < len(examples)]
    for name, example in in_turns[:HELD]:
        counts["plans"] += 1
        frame = Frame(world=world.name, intent=name, slots=dict(example))
        text = render(world, frame, "en", rng, canonical=True)
        try:
            task = admit(world, frame, text=text, language="en", seed=0, division="seed")
        except NotAdmitted as refused:
            counts["undetermined"] += refused.reason == "undetermined"
            continue
        counts["readmitted"] += 1
        counts["mismatches"] += not _replays_agree(world, task)
        idle = execute(world(0), task.messages, (), task.plan.answer)
        counts["idle"] += judge(world, task, idle.messages, idle.changes).success
        counts["undetermined"] += bool(undetermined(world, task, expert_messages(world, task), slot_forms(world, task)))
    return counts


def _replays_agree(world: type[LiveWorld], task: Task) -> bool:
    replays = [expert_messages(world, task) for _ in range(REPLAYS)]
    return all(replay == replays[0] for replay in replays) and verify(world, task, replays[0]).success


def _writers_used(world: type[LiveWorld], found: Exploration) -> set[str]:
    writers = {tool.name for tool in world.tools if tool.changes_state}
    return {call.tool for intent in found.intents for call in intent.calls if call.tool in writers}


def _examples(name: str, found: Exploration) -> list[str]:
    lines = [f"## {name}", ""]
    for intent in random.Random(5).sample(found.intents, min(5, len(found.intents))):
        slots = intent.examples[0]
        lines += [f"- {intent.says[0].format_map(slots)}", f"  - {' -> '.join(call.tool for call in intent.calls)}"]
    return [*lines, ""]
