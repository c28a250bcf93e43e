"""What policies of the experiment read: domains, prompts, tokens, code tasks, and what arms choose."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.experiment.arms import Shelf, chosen, quality, shuffled
from benchmarks.experiment.code_tasks import draw_code_tasks, printed
from benchmarks.experiment.config import DiversityExperimentConfig, DomainsConfig, PoolName
from benchmarks.experiment.domains import Domains, choose_domains, domains_of, draw_tasks
from benchmarks.experiment.learn import Example, examples_of
from benchmarks.experiment.pools import PoolJob, Talk, make_pool, read_pool
from benchmarks.experiment.prompts import prompted_task, shown_tools
from storage.records import FunctionCall, Message, ToolCall
from synth.worlds import WORLDS
from train import tiny


@pytest.fixture(scope="module")
def domains() -> Domains:
    return domains_of(choose_domains(DomainsConfig(themes=("golf_club", "driving_school"), training=4, held_out=2)))


def called(name: str, arguments: str = '{"id": "q083"}') -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(id="call_0", function=FunctionCall(name=name, arguments=arguments)),))


@pytest.mark.slow
def test_a_held_out_task_acts_with_a_new_tool_made_of_known_words(domains: Domains) -> None:
    tasks = draw_tasks(domains.held_out, 10, use="eval_out", seed=0, unknown_to=domains.known_tools)
    words = {word for name in domains.known_tools for word in name.split("_")}
    for task in tasks:
        assert task.plan.calls[-1].tool not in domains.known_tools
        assert all(set(call.tool.split("_")) <= words for call in task.plan.calls)
        assert task.success.changes


def test_tasks_of_training_and_of_measuring_share_no_world(domains: Domains) -> None:
    train = draw_tasks(domains.held_out, 20, use="train", seed=0)
    measured = draw_tasks(domains.held_out, 20, use="eval_out", seed=0)
    assert not {task.world_seed for task in train} & {task.world_seed for task in measured}


def test_a_prompt_lists_what_the_plan_needs_and_offers_nothing_else(domains: Domains) -> None:
    (task,) = draw_tasks(domains.training, 1, use="train", seed=1)
    shown = prompted_task(task, 6)
    listed, _, said = (shown.messages[0].content or "").partition("\n")
    assert len(shown.tools) == 6
    assert {call.tool for call in task.plan.calls} <= set(shown.tools)
    assert all(name.replace("_", " ") in listed for name in shown.tools)
    assert said == task.messages[-1].content
    assert shown_tools(task.world, [], 6, "one") != shown_tools(task.world, [], 6, "two")


def test_a_tokenizer_that_splits_names_can_write_one_that_it_never_saw(domains: Domains) -> None:
    seen = [tiny.render([Message(role="user", content="cancel golf round q083 or pay tee time"), called("cancel_golf_round")])]
    new = tiny.render([Message(role="user", content="pay golf round q083"), called("pay_golf_round")])
    split, whole = tiny.build_tokenizer(seen, splits_names=True), tiny.build_tokenizer(seen)
    ids = split(new)["input_ids"]
    assert split.decode(ids) == new
    assert all(len(split.decode([token]).strip()) != 1 or split.decode([token]).strip() in "q_" for token in ids)
    assert len(ids) < len(whole(new)["input_ids"])


def test_expert_conversations_survive_the_splitting_tokenizer(domains: Domains) -> None:
    from synth.tasks.solver import expert_messages

    tasks = [prompted_task(task, 6) for task in draw_tasks(domains.training, 30, use="train", seed=2)]
    texts = [tiny.render(expert_messages(WORLDS[task.world], task)) for task in tasks]
    tokenizer = tiny.build_tokenizer(texts, splits_names=True)
    assert [tokenizer.decode(tokenizer(text)["input_ids"]) for text in texts] == texts
    (example,) = examples_of(tokenizer, [expert_messages(WORLDS[tasks[0].world], tasks[0])])
    written = tokenizer.decode([token for token, marked in zip(example.ids, example.is_written, strict=True) if marked])
    assert tasks[0].plan.calls[-1].tool in written
    assert "done" not in written


@given(st.lists(st.integers(1, 999), min_size=2, max_size=3), st.lists(st.sampled_from("+-*"), min_size=2, max_size=2))
def test_a_program_of_one_expression_is_worked_out(numbers: list[int], signs: list[str]) -> None:
    written = str(numbers[0]) + "".join(f" {sign} {number}" for sign, number in zip(signs, numbers[1:], strict=False))
    assert printed(f"print({written})") == eval(written)


@pytest.mark.parametrize(
    "code", ["print(open('x'))", "1 + 2", "print(1, 2)", "print(2 ** 9)", "print('7')", "import os", "print(", "print(x)"]
)
def test_any_other_program_fails(code: str) -> None:
    assert printed(code) is None


def test_code_tasks_are_done_by_their_own_program() -> None:
    tasks = draw_code_tasks(50, "test")
    assert len({task.text for task in tasks}) == 50
    assert all(printed(task.code) is not None for task in tasks)
    assert draw_code_tasks(5, "test") == draw_code_tasks(5, "test") != draw_code_tasks(5, "other")


# ---- arms ----------------------------------------------------------------------------------------------------------------------


def shelf(lengths: list[int], *, domains: int = 4) -> Shelf:
    talks = tuple(
        Talk("w", f"d{0 if at % 3 else at % domains}", f"m{at % 5}", 1.0, (), (Message(role="user", content=str(at)), called("get")))
        for at in range(len(lengths))
    )
    examples = tuple(Example((1,) * length, (True,) * length) for length in lengths)
    return Shelf(talks, tuple(talk.messages for talk in talks), examples, 1.0)


@pytest.mark.parametrize("arm", ["random", "random_even", "quality", "controller", "no_domain", "shuffled"])
def test_every_arm_spends_the_same_tokens(arm: str) -> None:
    lengths = [int(length) for length in np.random.default_rng(1).integers(20, 200, size=400)]
    held = shelf(lengths)
    taken = chosen(arm, held, 100, 100.0, 2.0)  # type: ignore[arg-type]
    assert len(taken) == len(set(taken))
    assert 9_900 < sum(lengths[at] for at in taken) <= 10_000


def test_the_controller_chooses_more_evenly_than_chance() -> None:
    held = shelf([100] * 400)
    share = {arm: np.mean([held.talks[at].domain == "d0" for at in chosen(arm, held, 100, 100.0, 2.0)]) for arm in ("random", "controller")}  # type: ignore[arg-type]
    assert share["controller"] < share["random"] - 0.1


@pytest.mark.slow
def test_the_even_pool_favours_no_domain_and_the_native_one_does(tmp_path: Path) -> None:
    seeds = choose_domains(DomainsConfig(themes=("golf_club", "driving_school"), training=3, held_out=1))

    def counts(name: PoolName) -> list[int]:
        talks = read_pool(make_pool(PoolJob(name, 120, 0, DiversityExperimentConfig(), seeds, tmp_path))).talks
        return sorted(Counter(talk.domain for talk in talks).values())

    even, native = counts("even"), counts("native")
    assert sum(even) == sum(native) == 120
    assert even[-1] < 2.5 * even[0]
    assert native[-1] > 4 * native[0]


def test_quality_prefers_what_went_smoothly() -> None:
    smooth = [Message(role="user", content="x"), called("get"), Message(role="tool", content='{"id":"q1"}', tool_call_id="call_0")]
    rough = [*smooth, called("get"), Message(role="tool", content='{"error":"no"}', tool_call_id="call_0")]
    assert quality(smooth) > quality(rough) > quality(smooth[:1]) == 0


def test_shuffled_answers_are_the_same_answers_elsewhere() -> None:
    talks = [(Message(role="user", content=str(at)), called(f"tool_{at}")) for at in range(50)]
    dealt = shuffled(talks, 0)
    names = [talk[1].tool_calls[0].function.name for talk in dealt]
    assert sorted(names) == sorted(f"tool_{at}" for at in range(50))
    assert sum(name == f"tool_{at}" for at, name in enumerate(names)) < 10
    assert [talk[0] for talk in dealt] == [talk[0] for talk in talks]


def test_worlds_of_the_experiment_are_known_by_name(domains: Domains) -> None:
    assert all(world.name in WORLDS for world in (*domains.training, *domains.held_out))
