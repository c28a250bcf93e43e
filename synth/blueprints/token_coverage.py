"""Coverage per token: which blueprints of a set of candidates to execute (definition P4).

A blueprint covers the tools that it calls and the kinds of decision that its words or the tools' results ask for. A feature's worth
is its weight times the square root of how often the chosen conversations have it, so a first use is worth much, a hundredth little. Gains
only fall as features are counted (the sum is submodular), so the greedy choice is found lazily (CELF, Leskovec et al. 2007, section 4).
The cost of a blueprint is its estimated number of tokens. Nothing is executed and no teacher is paid before the choice.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from storage.records import Tool
from synth.blueprints.blueprint import Blueprint
from synth.worlds import WORLDS

RESULT_TOKENS = 30
"""Tokens that are assumed of a tool's result, which is not known before the blueprint is executed."""
CALL_TOKENS = 8
"""Tokens of a call beside its arguments' values."""


@dataclass(frozen=True, slots=True)
class CoverageWeights:
    """Weights of the features: acting tools, reading tools, kinds of decision in a domain."""

    act: float = 1.0
    read: float = 0.4
    decision: float = 0.3


_HAN = re.compile(r"[\u4e00-\u9fff]")
Features = Mapping[tuple[str, str], int]
"""(kind of feature, name) -> how often a blueprint has it."""


def decision_kinds(blueprint: Blueprint) -> list[str]:
    """The kinds of decision that the conversation asks the assistant for, beside its calls, each with a cue; repetitions kept."""
    kinds = [f"refuse {goal.refusal.value}" for goal in blueprint.goals if goal.refusal is not None and not goal.is_abandoned]
    kinds += ["answer" for goal in blueprint.goals if goal.facts and not goal.is_abandoned]
    kinds += ["ask" for turn in blueprint.turns if turn.withholds]
    kinds += [cue for turn in blueprint.turns for cue in turn.cues]
    kinds += ["repair" for one in blueprint.perturbations if one.kind == "error"]
    kinds += ["detour" for one in blueprint.perturbations if one.kind == "outage"]
    kinds += ["goal shift" for goal in blueprint.goals if goal.is_abandoned]
    kinds += ["refer back" for goal in blueprint.goals if goal.hidden]
    kinds += ["next goal"] * (sum(not goal.is_abandoned for goal in blueprint.goals) - 1)
    kinds += ["chain" for node in blueprint.nodes if any(argument.src == "node" for argument in node.arguments.values())]
    return kinds


def features(blueprint: Blueprint) -> Features:
    """What a blueprint covers: `act` and `read` tools by world, and `decision` kinds by domain."""
    changing = _changing(WORLDS[blueprint.world].tools)
    calls = [("act" if node.tool in changing else "read", f"{blueprint.world}.{node.tool}") for node in blueprint.nodes]
    return Counter([*calls, *(("decision", f"{blueprint.domain}.{kind}") for kind in decision_kinds(blueprint))])


def estimated_tokens(blueprint: Blueprint) -> int:
    """Tokens of the conversation before it is executed: words of its turns and calls, and an assumed length of each result.
    Without the system message and the list of tools, which nearly all conversations of a world share."""
    words = sum(_words(turn.text) + _words(turn.reply) for turn in blueprint.turns)
    values = sum(_words(str(argument.value)) for node in blueprint.nodes for argument in node.arguments.values())
    return max(1, words + values + len(blueprint.nodes) * (CALL_TOKENS + RESULT_TOKENS))


def _words(text: str) -> int:
    """Words of a text; a Han character counts as one."""
    return len(_HAN.sub(" x ", text).split())


class Coverage:
    """Counts the features of chosen blueprints, and chooses the next ones."""

    def __init__(self, weights: CoverageWeights | None = None, counts: Mapping[tuple[str, str], int] | None = None) -> None:
        self.weights = weights or CoverageWeights()
        self.counts: Counter[tuple[str, str]] = Counter(counts)
        self._by_kind = asdict(self.weights)

    def add(self, covered: Features) -> None:
        self.counts.update(covered)

    def gain(self, covered: Features) -> float:
        """How much the worth of all features rises with one more conversation that has these."""
        counts, weights = self.counts, self._by_kind
        gains = (
            weights[feature[0]] * (math.sqrt(counts[feature] + more) - math.sqrt(counts[feature])) for feature, more in covered.items()
        )
        return float(sum(gains))

    def choose(self, candidates: Sequence[tuple[Features, int]], most: int, factors: Sequence[float] | None = None) -> list[int]:
        """Positions of at most `most` candidates with the highest gain per token, each counted before the next is chosen.

        Args:
            candidates: features and cost in tokens (above 0) of each.
            factors: of each candidate's gain; None: 1. As a feature's worth is a square root, features whose gains have the factor f
                are chosen about f^2 times as often.
        """

        def looks(at: int) -> tuple[float, int]:
            covered, cost = candidates[at]
            return -(factors[at] if factors is not None else 1.0) * self.gain(covered) / cost, at

        chosen: list[int] = []
        heap = [looks(at) for at in range(len(candidates))]
        heapq.heapify(heap)
        while heap and len(chosen) < most:
            fresh = looks(heapq.heappop(heap)[1])
            if heap and fresh > heap[0]:
                heapq.heappush(heap, fresh)
                continue
            chosen.append(fresh[1])
            self.add(candidates[fresh[1]][0])
        return chosen


def _changing(tools: Iterable[Tool]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools if tool.changes_state)
