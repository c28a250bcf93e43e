"""The search for plans in a live world: read, try writes, look up what a user would not know, ask, join two goals; keep what is admitted.

One idea: candidates are cheap and mostly wrong; execution and admission decide. Phases share the time that is given:

| phase | finds |
|---|---|
| reads | results, whose values join those of the state |
| acts | calls with an effect |
| look-ups | acts and questions whose identifiers are looked up by what a user would say, up to three calls deep |
| questions | values in results |
| joins | two goals in one request |

It is repeatable but for the time: the same seed tries the same things in the same order, as far as it gets.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.records import JSON, Frame, canonical_json
from synth.explore.call_proposals import Proposal, Proposer
from synth.explore.found_plan import FoundPlan, intent_of_plans, join_plans
from synth.explore.lookups import Route, holds_value, routes_to, scalar_routes
from synth.explore.plan_wording import label_of_path, request_for_act, request_for_value
from synth.explore.sql import tables_of
from synth.explore.value_records import Record, Records, is_key_like
from synth.tasks.solver import NotAdmitted, admit
from synth.worlds.base import Unsolvable
from synth.worlds.live.copies.copy_errors import ServerFailed
from synth.worlds.live.live_intents import LiveIntent, fact_of, kinds_of
from synth.worlds.live.live_spec import DATA
from synth.worlds.live.live_world import LiveWorld
from synth.worlds.live.lock import FoundIntent, LiveTool
from synth.worlds.live.loose_json import parse_loosely
from synth.worlds.live.plans import KEY, Executed, PlanCall, execute_template, follow, form_of, found_in, moved

SHARES = {"reads": 0.08, "acts": 0.32, "lookups": 0.22, "questions": 0.16, "joins": 0.22}
READS_PER_TOOL, EXAMPLES, TRIES_PER_WRITER = 6, 8, 2000
LOOKUP_TRIES, LOOKUP_DEPTH = 10, 3
Progress = Callable[[str, int, int], None]
"""Phase, plans tried, plans admitted."""


@dataclass
class Exploration:
    """What was found. pruned: candidates with a shortcut, which were not tried. refused: reason -> plans. seconds: per phase."""

    intents: list[FoundIntent] = field(default_factory=list)
    tried: int = 0
    admitted: int = 0
    pruned: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


class Explorer:
    """Explores a live world.

    Args:
        world: without intents; its lock says which tools change the state.
        seconds: to spend.
        most: plans to admit.
        then: called when the search is over, with the explorer, to which it may give further plans.
    """

    def __init__(
        self,
        world: type[LiveWorld],
        *,
        seconds: float,
        most: int = 400,
        seed: int = 0,
        progress: Progress | None = None,
        then: Callable[[Explorer], None] | None = None,
    ) -> None:
        self._rng = random.Random(seed)
        self._seconds, self._most = seconds, most
        self._progress = progress or (lambda *_: None)
        self._then = then or (lambda _: None)
        self.last_error = ""
        """Why the last calls could not be made."""
        body: dict[str, Any] = {"intents": {}, "kinds": {}}
        self._kind: type[LiveWorld] = type(world.__name__, (world,), body)
        self._intents, self._kinds = body["intents"], body["kinds"]
        self._world = self._kind(0)
        self._start = self._world.snapshot()
        self._tools = {tool.name: tool for tool in world.lock.tools}
        self._readers = [tool for tool in world.lock.tools if not tool.changes_state]
        self._writers = [tool for tool in world.lock.tools if tool.changes_state]
        state = self._world.state()
        self._records = Records()
        self._records.add(state)
        self._add_paths()
        tables = tables_of(state) if any(part.sqlite for part in world.spec.state) else {}
        for name in tables:
            self._records.add_value("table_name", name)
        self._proposer = Proposer(self._records, tables, self._rng)
        self._found: dict[str, list[FoundPlan]] = defaultdict(list)
        self._seen: set[str] = set()
        self._has_changed = False
        self._acts: list[tuple[FoundPlan, Record | None]] = []
        self._reads: list[tuple[Proposal, JSON]] = []
        self._lookups: dict[str, tuple[Proposal, Route] | None] = {}
        self.result = Exploration()

    def run(self) -> Exploration:
        """Explores until the time is spent, or enough was found. Raises ServerFailed: the server fails again and again."""
        phases = {
            "reads": self._read, "acts": self._act, "lookups": self._look_up_in_acts, "questions": self._ask, "joins": self._join,
        }  # fmt: skip
        try:
            ends = time.monotonic()
            for name, work in phases.items():
                began = time.monotonic()
                ends = max(ends, began) if name == "reads" else ends
                ends += self._seconds * SHARES[name]
                for _ in work():
                    self._progress(name, self.result.tried, self.result.admitted)
                    if time.monotonic() > ends or self.result.admitted >= self._most:
                        break
                self.result.seconds[name] = round(time.monotonic() - began, 1)
            self._then(self)
        finally:
            self._world.close()
        self.result.intents = list(self._as_intents())
        return self.result

    @property
    def about(self) -> str:
        """What the world is for."""
        return self._kind.system_prompt

    @property
    def tools(self) -> list[LiveTool]:
        return list(self._tools.values())

    @property
    def reads(self) -> list[tuple[str, JSON]]:
        """Reads that were made, in words, with what they returned."""
        return [(f"{each.tool.name}({canonical_json(each.slots)})", result) for each, result in self._reads]

    @property
    def kinds(self) -> list[str]:
        """The tools of the plans that were admitted, of each kind once."""
        return [" then ".join(call.tool for call in plans[0].calls) for plans in self._found.values() if plans]

    # ---- phases -----------------------------------------------------------------------------------------------------------

    def _read(self) -> Iterator[None]:
        for _ in range(READS_PER_TOOL):
            for tool in self._readers:
                proposal = self._proposer.propose(tool)
                if proposal is not None:
                    self._make_read(proposal)
                yield

    def _act(self) -> Iterator[None]:
        tries: Counter[str] = Counter()
        hits: Counter[str] = Counter()
        while True:
            open_tools = [tool for tool in self._writers if hits[tool.name] < 2 * EXAMPLES and tries[tool.name] < TRIES_PER_WRITER]
            if not open_tools:
                return
            tool = min(open_tools, key=lambda tool: tries[tool.name])
            tries[tool.name] += 1
            proposal = self._proposer.propose(tool, is_writer=True)
            if proposal is not None and self._has_effect(proposal):
                says = (
                    f"Please {proposal.statement.says}."
                    if proposal.statement
                    else request_for_act((proposal.call,), proposal.labels, tool.description)
                )
                plan = FoundPlan((proposal.call,), proposal.slots, proposal.labels, says)
                hits[tool.name] += 1
                if not self.admit(plan):
                    self._acts.append((plan, proposal.about))
            yield

    def _look_up_in_acts(self) -> Iterator[None]:
        acts = list(self._acts)
        self._rng.shuffle(acts)
        for plan, about in acts:
            for grown in self._grown(plan, about, LOOKUP_DEPTH):
                if not self.admit(grown):
                    self._acts.append((grown, about))
            yield

    def _ask(self) -> Iterator[None]:
        for _ in range(1000):
            tool = self._rng.choice(self._readers) if self._readers else None
            if tool is None:
                return
            proposal = self._proposer.propose(tool)
            result = self._make_read(proposal) if proposal is not None else None
            if proposal is not None and result is not None:
                for plan in self._questions(proposal, result):
                    if not self.admit(plan):
                        for grown in self._grown(plan, proposal.about, LOOKUP_DEPTH - 1):
                            self.admit(grown)
            yield

    def _join(self) -> Iterator[None]:
        if len(self._acts) < 2:
            return
        by_kind: dict[str, list[FoundPlan]] = defaultdict(list)
        for plan, _ in self._acts:
            by_kind[plan.kind].append(plan)
        kinds = sorted(by_kind)
        for _ in range(2000):
            first, second = (self._rng.choice(by_kind[kind]) for kind in self._rng.sample(kinds, 2)) if len(kinds) > 1 else (None, None)
            if first is None or second is None:
                return
            if len(first.calls) + len(second.calls) <= 6:
                self.admit(join_plans(first, second))
            yield

    # ---- plans ------------------------------------------------------------------------------------------------------------

    def _questions(self, proposal: Proposal, result: JSON) -> Iterator[FoundPlan]:
        said = {str(value) for value in proposal.slots.values()}
        if proposal.statement is not None:
            told = routes_to(_only_value(result), result)
            if told:
                says = f"Please {proposal.statement.says}."
                yield FoundPlan((proposal.call,), proposal.slots, proposal.labels, says, told[0].path, proposal.statement.told or "value")
            return
        routes = [(route, value) for route, value in scalar_routes(result) if str(value) not in said and fact_of(value) is not None]
        routes = [(route, value) for route, value in routes if KEY not in route.path]
        for route, _ in self._rng.sample(routes, min(2, len(routes))):
            labels = {**proposal.labels, **route.labels}
            label = label_of_path(route.path)
            says = request_for_value((proposal.call,), labels, label, route.path)
            yield FoundPlan((proposal.call,), {**proposal.slots, **route.slots}, labels, says, route.path, label)

    def _grown(self, plan: FoundPlan, about: Record | None, depth: int) -> Iterator[FoundPlan]:
        """The plan with one key that is looked up by something else, and so on."""
        if depth == 0:
            return
        first = plan.calls[0]
        for name, source in first.arguments.items():
            is_list = isinstance(source, list) and len(source) == 1
            inner = source[0] if is_list else source
            if form_of(inner) != "said" or not is_key_like(name.removesuffix("s"), None):
                continue
            slot = inner["said"]
            looked_up = self._lookup(plan.slots[slot], about, f"{_first_word(name)}_")
            if looked_up is None or (set(looked_up[0].slots) | set(looked_up[1].slots)) & (set(plan.slots) - {slot}):
                continue
            grown = self._with_lookup(plan, name, slot, is_list, *looked_up)
            yield grown
            yield from self._grown(grown, about, depth - 1)

    def _with_lookup(self, plan: FoundPlan, name: str, slot: str, is_list: bool, read: Proposal, route: Route) -> FoundPlan:
        calls = moved(plan.calls, 1, {})
        found: JSON = {"found": [0, list(route.path)]}
        calls[0] = PlanCall(tool=calls[0].tool, arguments={**calls[0].arguments, name: [found] if is_list else found})
        all_calls = (read.call, *calls)
        slots = {**read.slots, **route.slots, **{key: value for key, value in plan.slots.items() if key != slot}}
        labels = {**read.labels, **route.labels, **plan.labels}
        description = self._tools[all_calls[-1].tool].description
        if plan.told is None:
            says = request_for_act(all_calls, labels, description)
        else:
            says = request_for_value(all_calls, labels, plan.told_label, plan.told)
        return FoundPlan(all_calls, slots, labels, says, plan.told, plan.told_label)

    def _lookup(self, value: JSON, about: Record | None, prefix: str) -> tuple[Proposal, Route] | None:
        """A read that shows this value, and the route to it; none of its arguments is the value."""
        key = f"{prefix}{value}"
        if key not in self._lookups:
            self._lookups[key] = self._search_lookup(value, about, prefix)
        return self._lookups[key]

    def _search_lookup(self, value: JSON, about: Record | None, prefix: str) -> tuple[Proposal, Route] | None:
        around = [record for each in self._records.by_value.get(str(value), [])[:4] for record in self._records.near(each)[:10]]
        for _ in range(LOOKUP_TRIES):
            if not self._readers or not around:
                return None
            tool = self._rng.choice(self._readers)
            proposal = self._proposer.propose(tool, self._rng.choice(around))
            if proposal is None or proposal.statement is not None or any(str(value) == str(each) for each in proposal.slots.values()):
                continue
            result = self._make_read(proposal)
            routes = routes_to(value, result, prefix) if result is not None else []
            if routes:
                return proposal, self._rng.choice(routes[:3])
        return None

    # ---- execution --------------------------------------------------------------------------------------------------------

    def _make_read(self, proposal: Proposal) -> JSON | None:
        """The result of a read; None for an error."""
        self.result.calls += 1
        executed = self.execute((proposal.call,), proposal.slots)
        if executed is None:
            return None
        result = executed.results()[0]
        if len(self._reads) < 500:
            self._records.add(result, at=f"{proposal.tool.name}{canonical_json(proposal.slots)[:200]}")
            self._reads.append((proposal, result))
        return result

    def _has_effect(self, proposal: Proposal) -> bool:
        self.result.calls += 1
        return self.execute((proposal.call,), proposal.slots) is not None and self._has_changed

    def execute(self, calls: Sequence[PlanCall], slots: Mapping[str, JSON]) -> Executed | None:
        """Makes the calls, and goes back to the start; None if they cannot be made, and why in `last_error`. Sets `_has_changed`."""
        self._has_changed, self.last_error = False, ""
        executed = None
        try:
            try:
                executed = execute_template(self._world, calls, slots)
            except Unsolvable as failed:
                self.last_error = failed.detail or failed.reason
            self._has_changed = bool(self._world.changes())
            self._world.restore(self._start)
        except ServerFailed as failure:
            self._world.reset(0)
            self.last_error = str(failure)[:300]
            return None
        return executed

    def admit(self, plan: FoundPlan) -> str:
        """Why the plan is not admitted as a task; empty if it is, and then it is kept."""
        mark = canonical_json([plan.kind, plan.slots])
        if mark in self._seen or len(self._found[plan.kind]) >= EXAMPLES:
            return "the same plan is there already"
        self._seen.add(mark)
        if len(plan.calls) > 1 and self._has_shortcut(plan):
            self.result.pruned += 1
            return "a call can be dropped: what it shows is said in the request, or shown before"
        name = f"plan_{len(self._seen)}"
        found = intent_of_plans(name, [plan])
        self._intents[name] = LiveIntent(self._kind.spec.live, found)
        self._kinds.update(kinds_of([found]))
        text = plan.says.format_map(plan.slots)
        self.result.tried += 1
        try:
            admit(
                self._kind,
                Frame(world=self._kind.name, intent=name, slots=dict(plan.slots)),
                text=text,
                language="en",
                seed=0,
                division="seed",
            )
        except NotAdmitted as refused:
            self.result.refused[refused.reason] += 1
            self.result.failures.append(f"{refused} | {text} | {[call.tool for call in plan.calls]}")
            return str(refused)
        except ServerFailed as failure:
            self.result.refused["server_failed"] += 1
            self.result.failures.append(str(failure)[:300])
            return str(failure)[:300]
        finally:
            del self._intents[name]
        self.result.admitted += 1
        self._found[plan.kind].append(plan)
        return ""

    def _has_shortcut(self, plan: FoundPlan) -> bool:
        """Whether a value that is looked up, or asked for, is known before: said in the request, or shown by an earlier call.

        Such a plan has a call that can be dropped. Also where a call is made twice, or cannot be made."""
        executed = self.execute(plan.calls, plan.slots)
        if executed is None:
            return True
        results = executed.results()
        if len({canonical_json([call.tool, call.arguments]) for call in executed.calls}) < len(executed.calls):
            return True
        shown: list[tuple[int, JSON]] = [
            (at, follow(results[at], path, plan.slots))
            for call in plan.calls
            for source in call.arguments.values()
            for at, path in found_in(source)
        ]
        shown += [(len(results) - 1, follow(results[-1], plan.told, plan.slots))] if plan.told is not None else []
        said = {str(value) for value in plan.slots.values()}
        return any(str(value) in said or any(holds_value(result, value) for result in results[:at]) for at, value in shown)

    def _add_paths(self) -> None:
        if any(part.files for part in self._kind.spec.state):
            for path in self._world.pool.start(0).snapshot.contents:
                if not path.startswith(".git/") and path != ".git":
                    self._records.add_value("path", f"{DATA}/{path}")

    def _as_intents(self) -> Iterator[FoundIntent]:
        taken: Counter[str] = Counter()
        for plans in self._found.values():
            if plans:
                base = (
                    "_via_".join(call.tool for call in reversed(plans[0].calls[-2:]))
                    if len(plans[0].calls) <= 2
                    else f"{plans[0].calls[-1].tool}_in_{len(plans[0].calls)}"
                )
                base = "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in base)
                taken[base] += 1
                yield intent_of_plans(base if taken[base] == 1 else f"{base}_{taken[base]}", plans)


def _first_word(name: str) -> str:
    return name.split("_", maxsplit=1)[0].lower()


def _only_value(result: JSON) -> JSON:
    """The value of a result with one row of one column; None for any other."""
    value = parse_loosely(result)
    while isinstance(value, list | Mapping) and len(value) == 1:
        value = value[0] if isinstance(value, list) else next(iter(value.values()))
    return None if isinstance(value, list | Mapping) else value
