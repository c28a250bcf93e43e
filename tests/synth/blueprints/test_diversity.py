"""The figures of P3, against values worked out by hand and the four examples that the definition gives."""

import json
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.conversation import derive_turns
from storage.records import FunctionCall, Message, Tool, ToolCall
from synth.blueprints.diversity import (
    Profile,
    bigram_entropy,
    coarse_mode,
    complexity,
    domain_diversity,
    entropy_bits,
    figures,
    fine_mode,
    mean_distance,
    mode_entropy,
    nesting_depth,
)

READ = Tool(name="read", description="", parameters={}, server="s", domain="d")
ACT = Tool(name="act", description="", parameters={}, server="s", domain="d", changes_state=True)
TOOLS = {"read": READ, "act": ACT}


class Talk:
    """Writes a conversation whose calls return one fresh value each, so that later calls can use it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.made = 0

    def user(self, text: str = "please") -> "Talk":
        self.messages.append(Message(role="user", content=text))
        return self

    def say(self, text: str = "done") -> "Talk":
        self.messages.append(Message(role="assistant", content=text))
        return self

    def calls(self, *calls: tuple[str, dict[str, object]], result: str | None = None) -> "Talk":
        """One step; the result of the n-th call of the conversation is {"v": "value-n"}."""
        made = []
        for tool, arguments in calls:
            self.made += 1
            made.append(
                (
                    ToolCall(id=f"c{self.made}", function=FunctionCall(name=tool, arguments=json.dumps(arguments))),
                    f'{{"v": "value-{self.made}"}}',
                )
            )
        self.messages.append(Message(role="assistant", tool_calls=tuple(call for call, _ in made)))
        self.messages += [Message(role="tool", tool_call_id=call.id, content=result or text) for call, text in made]
        return self

    def cac(self) -> float:
        return complexity(derive_turns(self.messages), TOOLS)


def constants(n: int) -> dict[str, object]:
    return {f"k{i}": f"const{i}" for i in range(n)}


# ---- the four checked examples of CAC. The definition gives the totals and the kind of each; what exactly is in them is ours. ----


def test_one_simple_call_is_1_5() -> None:
    assert Talk().user().calls(("read", {"a": "x"})).say().cac() == pytest.approx(1.5)


def test_a_chain_of_three_is_7() -> None:
    talk = Talk().user().calls(("read", {"a": "x"}))
    talk.calls(("read", {"a": "value-1", **constants(2)})).calls(("read", {"a": "value-2", **constants(2)})).say()

    assert talk.cac() == pytest.approx(7.0)


def test_eight_mixed_calls_in_three_turns_are_26_2() -> None:
    talk = Talk().user().calls(("read", {"a": "x"}))
    talk.calls(("read", {"a": "value-1", **constants(3)}), ("read", {"a": "value-1", "b": "z", **constants(2)})).say()
    talk.user().calls(("act", {"a": "value-2", "b": "value-3"}))
    talk.calls(("read", {"a": "value-1", **constants(3)}), result='{"error": "busy"}').calls(
        ("read", {"a": "value-1", **constants(3)})
    ).say()
    talk.user().calls(("read", {"a": "value-1", "b": {"deep": 1}, **constants(3)})).calls(("act", {"a": "value-7"})).say()

    by_hand = 0.5 * 2  # three turns
    by_hand += 1 + 0.5  # one argument
    by_hand += 2 * (1 + 0.5 * math.log2(5) + 0.5 + 0.25)  # two reads of four arguments, one of them from one step back
    by_hand += 1 + 0.5 * math.log2(3) + 2 * 0.5 + 0.25 + 0.5  # an act with two parents
    by_hand += 1 + 0.5 * math.log2(5) + 0.5 + 0.25 * math.log2(4) + 0.5  # the same read again: verification, three steps back
    by_hand += 1 + 0.5 * math.log2(5) + 0.5 + 0.25 * math.log2(5) + 1.0  # recovery, four steps back
    by_hand += 1 + 0.5 * math.log2(6) + 0.25 + 0.5 + 0.25 * math.log2(6)  # a nested argument
    by_hand += 1 + 0.5 + 0.5 + 0.25 + 0.5  # an act on what was read
    assert talk.cac() == pytest.approx(by_hand)
    assert round(talk.cac(), 1) == 26.2


def test_twenty_hard_calls_in_five_turns_are_114_5() -> None:
    talk = Talk()
    for number in range(20):
        if number % 4 == 0:
            talk.say().user() if number else talk.user()
        fed = {f"p{back}": f"value-{number - back}" for back in range(min(number, 4))}
        free = constants((4, 4, 3, 4)[number % 4] + (number == 19))
        talk.calls(("act" if number % 4 >= 2 else "read", {**free, **fed, "list": [["a"]]}))
    talk.say()

    assert round(talk.cac(), 1) == 114.5


def test_nesting_depth() -> None:
    assert [nesting_depth(value) for value in (1, {}, {"a": 1}, {"a": [1]}, {"a": {"b": [1]}})] == [0, 1, 1, 2, 3]


# ---- signatures -----------------------------------------------------------------------------------------------------


def test_coarse_signatures_cap_runs_and_fine_ones_name_tools_and_hops() -> None:
    talk = Talk().user().calls(("read", {"a": "x"})).calls(("read", {"a": "value-1"})).calls(("act", {"a": "value-1"})).say()
    turns = derive_turns(talk.messages)

    assert coarse_mode(turns) == "C>S+>F"
    assert fine_mode(turns) == "C(read)>S(read:1)>S(act:2)>F"


def test_a_run_in_fine_signatures_is_one_of_equal_tools() -> None:
    talk = Talk().user().calls(("read", {"a": "x"})).calls(("read", {"a": "y"})).calls(("act", {"a": "z"})).say()

    assert fine_mode(derive_turns(talk.messages)) == "C(read)+>C(act)>F"


# ---- entropies ------------------------------------------------------------------------------------------------------


def test_domain_diversity_of_an_even_and_of_a_single_domain() -> None:
    even, single = domain_diversity(["a", "b", "c", "d"], "abcd"), domain_diversity(["a"] * 4, "abcd")

    assert (even.entropy_bits, even.evenness, even.effective) == (2.0, 1.0, 4.0)
    assert (single.entropy_bits, single.evenness, single.effective) == (0.0, 0.0, 1.0)


def test_a_label_outside_the_fixed_set_is_refused() -> None:
    with pytest.raises(ValueError, match="outside the fixed set of domains: x"):
        domain_diversity(["a", "x"], "ab")


@given(st.lists(st.integers(0, 50), max_size=12))
def test_entropy_lies_between_0_and_log_of_the_support(counts: list[int]) -> None:
    support = sum(count > 0 for count in counts)

    assert -1e-9 <= entropy_bits(counts) <= math.log2(max(support, 1)) + 1e-9


def test_five_hundred_unique_signatures_are_8_97_bits() -> None:
    mean, sd, n = mode_entropy([f"m{i}" for i in range(2000)])

    assert (round(mean, 2), n) == (8.97, 500)
    assert sd > 0


def test_mode_entropy_is_measured_at_equal_size_or_a_larger_set_looks_more_diverse() -> None:
    """Negative control: two sets from one distribution, one ten times as large."""
    rng = random.Random(0)
    large = [f"m{int(rng.expovariate(0.002))}" for _ in range(5000)]
    small = large[:500]

    at_equal_size = mode_entropy(large)[0] - mode_entropy(small)[0]
    at_own_size = mode_entropy(large, size=5000)[0] - mode_entropy(small)[0]

    assert abs(at_equal_size) < 0.1
    assert at_own_size > 0.5


def test_miller_madow_adds_its_term() -> None:
    signatures = ["a"] * 50 + ["b"] * 30 + ["c"] * 20

    assert mode_entropy(signatures, miller_madow=True)[0] - mode_entropy(signatures)[0] == pytest.approx(2 / (200 * math.log(2)))


def test_bigrams_count_start_and_end() -> None:
    assert bigram_entropy([["read"], ["read"]]) == pytest.approx(1.0)
    assert bigram_entropy([]) == 0.0


@given(st.integers(2, 8), st.integers(0, 100))
def test_mean_distance_is_that_of_all_pairs(n: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    by_pairs = [1 - float(vectors[i] @ vectors[j]) for i in range(n) for j in range(i)]

    assert mean_distance(vectors) == pytest.approx(np.mean(by_pairs), abs=1e-5)


def test_copies_of_one_trajectory_have_no_diversity_in_any_figure() -> None:
    """Negative control: the figures together cannot be gamed by volume."""
    profile = Profile("w", "d", "C>F", "C(read)>F", 1.5, ("read",))
    vector = np.zeros((50, 4), dtype=np.float32)
    vector[:, 0] = 1
    universe = [(world, tool) for world in "wx" for tool in ("read", "act")]

    found = {figure.metric: figure.value for figure in figures([profile] * 50, domains=("d", "e"), universe=universe, vectors=vector)}

    assert found["domain_entropy_bits"] == found["mode_entropy_coarse_bits"] == found["mode_entropy_fine_bits"] == 0
    assert found["mean_embedding_distance"] == pytest.approx(0)
    assert found["tool_coverage"] == 0.25, "tools of another world are others, whatever their names"
