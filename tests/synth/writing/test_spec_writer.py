"""The spec writer: problems are sent back and repaired; kept specs compile, are solvable and new; no request is repeated.
The models are scripted; their specs are complete."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from storage.errors import BadInput
from storage.files import Busy, file_lock
from synth.engines.base import ChatAnswer, ChatRequest, Engine, EngineFailure
from synth.engines.budget import BudgetSpent
from synth.prompts import prompt
from synth.tasks.assessment import assess
from synth.worlds import WORLDS
from synth.worlds.declarative.acting import Refused
from synth.worlds.declarative.compile import compile_file
from synth.worlds.declarative.language import schema, spec_schema
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.writing.similarity import signatures_of, similarity
from synth.writing.spec_folder import Attempt, SpecFolder
from synth.writing.spec_gate import SpecGateConfig, check_answer, yaml_in
from synth.writing.spec_writer import CHANGES, SpecWriterConfig, WriteResult, estimate, example_of, known_worlds, write_specs
from tests.synth.scripted_writer import BROKEN, RARE, RENAMED, WORKSHOP, ScriptedWriter, fenced, generated

GATE = SpecGateConfig()
NEW = SpecWriterConfig(evolve_share=0)
"""Never a variation, so that which attempts there are is plain."""


assess_once = cache(assess)
"""Most tests look at the same few specs."""


@pytest.fixture(scope="module", autouse=True)
def no_sandbox() -> Iterator[None]:
    """Whether jobs that need a program are among the intents depends on the machine; here they never are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synth.worlds.declarative.compiled_world.missing", lambda: "left out here")
        patch.setattr("synth.writing.spec_gate.assess", assess_once)
        yield


def run_writer(engine: Engine, out: Path, wanted: int = 1, config: SpecWriterConfig = NEW, about: str = "a car workshop") -> WriteResult:
    return write_specs(engine, out, wanted, about=about, config=config)


def only_attempt(ended: WriteResult) -> Attempt:
    (attempt,) = ended.folder.attempts
    return attempt


# ---- mending ----------------------------------------------------------------------------------------------------------------


def test_a_broken_spec_is_sent_back_with_the_compilers_messages_and_kept_when_mended(tmp_path: Path) -> None:
    """Given a spec with a typo and an unknown entity, when it is looked at, then the model is told both in the compiler's words, without a
    file, and the mended spec is a file that compiles, with where it comes from above it."""
    model = ScriptedWriter([fenced(BROKEN), fenced(WORKSHOP)])
    ended = run_writer(model, tmp_path)
    first, second = model.requests
    assert "Write the spec of a business: a car workshop." in str(first.messages[-1].content)
    told = str(second.messages[-1].content)
    assert "entities.repair.fields.mechanic.to: no entity 'mechanik'; did you mean 'mechanic'?" in told
    assert "It does not compile" in told and str(tmp_path) not in told
    assert second.messages[:2] == first.messages and "mechanik" in str(second.messages[2].content)
    attempt = only_attempt(ended)
    assert (attempt.outcome, attempt.tries, attempt.file, attempt.problems) == ("kept", 2, "car_workshop.yaml", ())
    assert (attempt.prompt_tokens, attempt.completion_tokens, attempt.usd) == (2000, 400, 1.0)
    text = (tmp_path / "car_workshop.yaml").read_text(encoding="utf-8")
    assert compile_file(tmp_path / "car_workshop.yaml").domain.name == "car_workshop" and text.endswith(WORKSHOP)
    for line in ("# engine: scripted:writer", f"# prompts: spec_writer {prompt('spec_writer').version}", "# parent: none", "2 tries"):
        assert line in text
    assert not ended.stopped and not list(tmp_path.glob(".tmp-*"))


@pytest.mark.slow
def test_all_that_is_wrong_in_turn_is_told_and_the_conversation_does_not_grow(tmp_path: Path) -> None:
    """Given a model that errs in another way each time, then each answer is sent back with its own reason, in four messages."""
    model = ScriptedWriter(["I cannot.", fenced(BROKEN), fenced(RARE), fenced(RENAMED), fenced(WORKSHOP)])
    assert only_attempt(run_writer(model, tmp_path)).outcome == "kept"
    told = [str(request.messages[-1].content) for request in model.requests[1:]]
    assert [len(request.messages) for request in model.requests] == [2, 4, 4, 4, 4]
    for text, words in zip(
        told, ("there is no spec in the answer", "did you mean 'mechanic'", "tasks of only 42 of 45 intents", "tool_library"), strict=True
    ):
        assert words in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "outcome", "problem"),
    [
        ("I would rather not.", "no_yaml", "there is no spec in the answer"),
        (fenced(BROKEN), "does_not_compile", "mechanik"),
        (fenced("domain: [unclosed"), "does_not_compile", "not valid YAML"),
        (fenced("domain: nothing_else"), "does_not_compile", "about: is missing"),
        (fenced(RARE), "not_admitted", "tasks of only 42 of 45 intents can be solved"),
        (fenced(RENAMED), "too_alike", "100% the same as those of tool_library"),
        (
            fenced((Path(schema.__file__).parents[2] / "library" / "banking.yaml").read_text(encoding="utf-8")),
            "too_alike",
            "banking",
        ),
    ],
)
def test_what_is_never_mended_is_not_kept_and_its_outcome_says_why(tmp_path: Path, said: str, outcome: str, problem: str) -> None:
    config = NEW.model_copy(update={"repairs": 1, "attempts_per_spec": 2})
    ended = run_writer(ScriptedWriter([said], [said]), tmp_path, config=config)
    assert [(each.outcome, each.tries) for each in ended.folder.attempts] == [(outcome, 2), (outcome, 2)]
    assert problem in ended.folder.attempts[0].problems[0]
    assert ended.folder.counts() == {outcome: 2}
    assert "0 of 1 specs kept, and no attempt is left" in ended.stopped
    assert not list(tmp_path.glob("*.yaml"))


@pytest.mark.slow
def test_an_admission_that_passes_at_a_lower_bar_fails_at_a_higher_one() -> None:
    """The control of `not_admitted`: the same text passes where less is demanded, and the sound spec passes where more is."""
    assert check_answer(RARE, {}, SpecGateConfig(least_intent_share=0.9)).outcome == "kept"
    assert check_answer(RARE, {}, GATE).outcome == "not_admitted"
    assert check_answer(WORKSHOP, {}, SpecGateConfig(least_intent_share=1.0)).intents == (46, 46)
    assert check_answer(WORKSHOP, {}, SpecGateConfig(least_intents=47)).outcome == "not_admitted"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OverflowError("int too large"), "numbers grow out of all bounds when tasks are drawn (int too large); look at what is multiplied"),
        (ValueError("day is out of range for month"), "tasks cannot be drawn: day is out of range for month"),
        (Refused("the visit is over"), "tasks cannot be drawn: the visit is over"),
    ],
)
def test_what_keeps_tasks_from_being_drawn_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch, error: Exception, told: str) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("synth.writing.spec_gate.assess", fails)
    result = check_answer(WORKSHOP, {}, GATE)
    assert (result.outcome, result.problems) == ("not_admitted", (told,))


def test_looking_at_specs_registers_no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.writing.spec_gate.assess", assess)
    before, gate = WORLDS.names(), SpecGateConfig(tasks_per_intent=1)
    assert check_answer(WORKSHOP, {}, gate).outcome == "kept"
    assert check_answer(RARE, {}, gate).outcome == "not_admitted"
    assert WORLDS.names() == before


@pytest.mark.parametrize(
    "answer",
    [
        "domain: a\nabout: b\n",
        "I write it.\ndomain: a\nabout: b",
        "Sure:\n```yaml\ndomain: a\nabout: b\n```\nDone.",
        "```\ndomain: a\nabout: b",
        "```yaml\nkind: other\n```\n```yml\ndomain: a\nabout: b\n```",
        "<think>```yaml\ndomain: z\n```</think>\n\ufeffdomain: a\nabout: b\n",
    ],
)
def test_the_spec_is_found_in_what_models_say_around_it(answer: str) -> None:
    assert yaml_in(answer) == "domain: a\nabout: b\n"


@pytest.mark.parametrize("answer", ["", "the domain: none", "```yaml\nkind: other\n```", "entities: what there is\nactions: what is done"])
def test_talk_about_specs_is_no_spec(answer: str) -> None:
    assert yaml_in(answer) is None


def test_a_spec_whose_domain_stands_further_down_is_taken_whole() -> None:
    assert yaml_in("Sure.\n\nabout: b\ndomain: a\n") == "about: b\ndomain: a\n"


def test_json_is_a_spec_too() -> None:
    values = parse_text(WORKSHOP)
    for said in (json.dumps(values), "```json\n" + json.dumps(values, indent=1) + "\n```"):
        assert check_answer(said, {}, GATE).outcome == "kept"


# ---- varying --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_kept_is_varied_and_a_variation_has_to_differ_from_its_parent(tmp_path: Path) -> None:
    """Given one kept spec, when another is wanted, then the model sees the kept one and what to change, its copy is refused, and the new
    one is kept with its parent named."""
    config = SpecWriterConfig(evolve_share=1, repairs=1)
    run_writer(ScriptedWriter([fenced(WORKSHOP)]), tmp_path, 1, config)
    model = ScriptedWriter([fenced(WORKSHOP), fenced(generated(3))])
    ended = run_writer(model, tmp_path, 2, config)
    first, second = model.requests
    asked = str(first.messages[-1].content)
    assert "Write a variation of it" in asked and WORKSHOP.strip() in asked and "# engine" not in asked
    assert "100% the same as those of car_workshop.yaml" in str(second.messages[-1].content)
    order = ended.folder.attempts[1].order
    assert order.parent == "car_workshop.yaml" and order.change in CHANGES and "car_workshop" in order.known
    assert f"# parent: car_workshop.yaml ({order.change})" in (tmp_path / ended.folder.attempts[1].file).read_text(encoding="utf-8")


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_has_its_own_words(change: str) -> None:
    values = {"parent": "domain: x", "about": "", "known": (), "most_alike": 50}
    words = [str(prompt("spec_writer_evolve").messages(**values, change=each)[1].content) for each in (change, "none of these")]
    assert len(words[0]) > len(words[1]) + 80


@pytest.mark.slow
def test_a_given_spec_is_shown_and_must_be_differed_from(tmp_path: Path) -> None:
    like = tmp_path / "mine.yaml"
    like.write_text("# of our house\n" + WORKSHOP, encoding="utf-8")
    model = ScriptedWriter([fenced(WORKSHOP), fenced(generated(3))])
    ended = write_specs(model, tmp_path / "out", 1, like=[example_of(like)], config=NEW)
    assert WORKSHOP.strip() in str(model.requests[0].messages[-1].content)
    assert f"those of {like}" in str(model.requests[1].messages[-1].content)
    assert only_attempt(ended).outcome == "kept"


@pytest.mark.slow
def test_a_spec_that_lies_in_the_folder_is_left_alone_and_differed_from(tmp_path: Path) -> None:
    (tmp_path / "garage.yaml").write_text(WORKSHOP, encoding="utf-8")
    ended = run_writer(ScriptedWriter([fenced(WORKSHOP), fenced(generated(3))]), tmp_path)
    assert only_attempt(ended).tries == 2 and (tmp_path / "garage.yaml").read_text(encoding="utf-8") == WORKSHOP


def test_a_name_that_is_taken_gets_the_content_beside_it(tmp_path: Path) -> None:
    (tmp_path / "car_workshop.yaml").write_text("domain: not a spec\n", encoding="utf-8")
    attempt = only_attempt(run_writer(ScriptedWriter([fenced(WORKSHOP)]), tmp_path))
    assert attempt.file.startswith("car_workshop-") and (tmp_path / attempt.file).is_file()
    assert (tmp_path / "car_workshop.yaml").read_text(encoding="utf-8") == "domain: not a spec\n"


# ---- faults, budgets, and going on --------------------------------------------------------------------------------------------------


def test_an_engine_that_fails_for_one_attempt_harms_no_other_and_is_asked_again_later(tmp_path: Path) -> None:
    """Given two attempts at once, one of which the server never answers, then the other is kept, the failure is no spec's, and the next
    run asks for the very same."""
    config = NEW.model_copy(update={"attempts_per_spec": 1})
    model = ScriptedWriter([EngineFailure("no answer in time")], [fenced(WORKSHOP)])
    ended = run_writer(model, tmp_path, 2, config)
    assert [each.outcome for each in ended.folder.attempts] == ["infra_failure", "kept"]
    assert ended.folder.attempts[0].problems == ("no answer in time",)
    assert "no attempt is left" in ended.stopped
    again = ScriptedWriter([fenced(generated(3))])
    assert [each.outcome for each in run_writer(again, tmp_path, 2, config).folder.attempts] == ["kept", "kept"]
    assert again.requests[0] == model.requests[0]


def test_a_server_that_is_gone_ends_the_run(tmp_path: Path) -> None:
    ended = run_writer(ScriptedWriter([EngineFailure("gone")], [EngineFailure("gone")]), tmp_path, 2)
    assert ended.stopped == "the engine failed: gone; the same command continues"
    assert ended.folder.counts() == {"infra_failure": 2}


def test_a_server_that_is_gone_is_not_asked_for_every_attempt(tmp_path: Path) -> None:
    """Given six attempts at once, then after the batch and three requests in a row without an answer the others are not tried; the first
    of them is, where an answer came in between."""
    asked: list[int] = []

    class Counting(ScriptedWriter):
        def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
            asked.append(len(requests))
            return super().chat(requests)

    gone, kept = [EngineFailure("gone")], [fenced(WORKSHOP)]
    ended = run_writer(Counting(*[gone] * 6), tmp_path / "gone", 6)
    assert asked == [6, 1, 1, 1]
    assert ended.folder.counts() == {"infra_failure": 6} and ended.stopped.startswith("the engine failed: gone")
    asked.clear()
    ended = run_writer(Counting(gone, gone, kept, gone, gone, gone), tmp_path / "once", 6, NEW.model_copy(update={"attempts_per_spec": 1}))
    assert asked[:7] == [6, *[1] * 6] and ended.folder.counts() == {"infra_failure": 5, "kept": 1}


def test_a_spent_budget_ends_the_run_with_what_is_kept_and_the_rest_goes_on_in_the_same_words(tmp_path: Path) -> None:
    """Given two attempts, of which one is kept at once and the other needs mending when the budget is spent, then the first is a file and
    the second is open; the next run begins with the request that was asked before, so that a cache knows it."""
    scripts = [fenced(WORKSHOP)], [fenced(BROKEN), BudgetSpent("the budget is spent: 5 of 4 tokens")]
    model = ScriptedWriter(*scripts)
    ended = run_writer(model, tmp_path, 2)
    assert ended.stopped == "the budget is spent: 5 of 4 tokens"
    assert [(each.outcome, each.tries) for each in ended.folder.attempts] == [("kept", 1), (None, 1)]
    assert [path.name for path in tmp_path.glob("*.yaml")] == ["car_workshop.yaml"]
    again = ScriptedWriter([fenced(BROKEN), fenced(generated(3))])
    ended = run_writer(again, tmp_path, 2)
    assert [(each.outcome, each.tries) for each in ended.folder.attempts] == [("kept", 1), ("kept", 2)]
    assert again.requests == model.requests[1:]


def test_a_finished_run_asks_for_nothing(tmp_path: Path) -> None:
    run_writer(ScriptedWriter([fenced(WORKSHOP)]), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    model = ScriptedWriter()
    assert not run_writer(model, tmp_path).stopped
    assert not model.requests and {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_kill_between_the_report_and_the_file_loses_nothing(tmp_path: Path) -> None:
    """Given a report that says kept and no file, as a kill may leave it, then the same is asked again and the file is the same."""
    first = ScriptedWriter([fenced(WORKSHOP)])
    run_writer(first, tmp_path)
    text = (tmp_path / "car_workshop.yaml").read_bytes()
    (tmp_path / "car_workshop.yaml").unlink()
    again = ScriptedWriter([fenced(WORKSHOP)])
    run_writer(again, tmp_path)
    assert again.requests == first.requests and (tmp_path / "car_workshop.yaml").read_bytes() == text


def test_progress_counts_kept_specs(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    model = ScriptedWriter(["no"], [fenced(WORKSHOP)])
    config = NEW.model_copy(update={"repairs": 0})
    write_specs(model, tmp_path, 1, config=config, progress=lambda label, done, total: seen.append((label, done, total)))
    assert seen == [("write specs", 0, 1), ("write specs", 0, 1), ("write specs", 1, 1)]


def test_two_runs_do_not_write_into_one_folder(tmp_path: Path) -> None:
    with file_lock(tmp_path / ".lock", wait_s=1), pytest.raises(Busy):
        run_writer(ScriptedWriter([fenced(WORKSHOP)]), tmp_path)


def test_bad_folders_and_examples_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="is a file"):
        SpecFolder(tmp_path / "file")
    (tmp_path / "attempts.json").write_text('[{"order": 3}]')
    with pytest.raises(BadInput, match=r"attempts.json cannot be read .* move it away"):
        SpecFolder(tmp_path)
    (tmp_path / "broken.yaml").write_text(BROKEN, encoding="utf-8")
    with pytest.raises(SpecError, match=r"broken.yaml: .*mechanik"):
        example_of(tmp_path / "broken.yaml")


def test_a_window_that_no_spec_fits_is_told_before_anything_is_asked(tmp_path: Path) -> None:
    class Narrow(ScriptedWriter):
        context_tokens = 8192

    model = Narrow([fenced(WORKSHOP)])
    with pytest.raises(BadInput, match="has a window of 8,192 tokens, but a request and its answer need about 1"):
        run_writer(model, tmp_path)
    model.context_tokens = 32_768
    assert only_attempt(run_writer(model, tmp_path)).outcome == "kept"


def test_an_estimate_asks_and_writes_nothing(tmp_path: Path) -> None:
    found = estimate(tmp_path / "out", 3, about="a bakery")
    assert (found.missing, found.attempts) == (3, 12) and 0 < found.least_tokens < found.most_tokens
    assert "a bakery" in str(found.opening[-1].content) and not (tmp_path / "out").exists()
    run_writer(ScriptedWriter([fenced(WORKSHOP)]), tmp_path)
    assert estimate(tmp_path, 1).missing == 0


# ---- whatever is kept ---------------------------------------------------------------------------------------------------------------

ANSWERS = st.one_of(
    st.sampled_from([0, 3]).map(generated), st.sampled_from([WORKSHOP, BROKEN, RARE, RENAMED, "no", "domain: x"]), st.text(max_size=40)
)


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@example([[RARE, RARE], [RENAMED], [WORKSHOP], [WORKSHOP, generated(3)]])
@given(st.lists(st.lists(ANSWERS, min_size=1, max_size=2), min_size=4, max_size=4))
def test_whatever_is_kept_compiles_is_solvable_and_differs_from_all_before(scripts: list[list[str]]) -> None:
    config = SpecWriterConfig(repairs=1, attempts_per_spec=2, gate=SpecGateConfig(tasks_per_intent=2))
    with tempfile.TemporaryDirectory() as folder:
        ended = write_specs(ScriptedWriter(*scripts), Path(folder), 2, config=config)
        before = known_worlds(())
        for attempt in ended.folder.kept_attempts():
            world = compile_file(Path(folder) / attempt.file)
            signatures = signatures_of(world)
            assert all(similarity(signatures, other) < config.gate.most_alike for other in before.values())
            before[attempt.file] = signatures
            try:
                drawn = assess_once(world, 2 * len(world.jobs()), seed=1)  # other tasks than those that let it pass
                assert sum(drawn.admitted[intent.name] >= 1 for intent in world.jobs()) >= 0.95 * len(world.jobs())
            finally:
                WORLDS.forget(world.name)
        kept = {attempt.file for attempt in ended.folder.kept_attempts()}
        assert {path.name for path in Path(folder).glob("*.yaml")} == kept
        assert len(kept) == 2 or ended.stopped


# ---- the prompt ---------------------------------------------------------------------------------------------------------------------


def test_the_prompt_names_every_key_of_the_language() -> None:
    """Whoever adds to the language is reminded to tell the model."""
    values = {"starter": (Path(schema.__file__).parents[1] / "starter.yaml").read_text(encoding="utf-8"), "most_alike": 50}
    system = str(prompt("spec_writer").messages(**values, about="", known=(), examples=())[0].content)
    models: list[type[BaseModel]] = [
        spec_schema.SpecHead,
        spec_schema.EntitySpec,
        spec_schema.ActionSpec,
        spec_schema.Need,
        spec_schema.Rule,
        spec_schema.Move,
        spec_schema.Info,
    ]
    models += [spec_schema.Naming, *schema.FIELD_TYPES.values(), *schema.PARAM_TYPES.values()]
    keys = {info.alias or name for model in models for name, info in model.model_fields.items()} - {"rows_from"}  # of the user's own files
    missing = {key for key in {*keys, *schema.FIELD_TYPES} if f"`{key}`" not in system and f"{key}:" not in system}
    assert not missing
