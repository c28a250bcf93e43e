"""Training rows beside the engine's context and the model's own rendering: equal in every template, and no difference is overlooked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from benchmarks.links_sections import templates
from benchmarks.links_sections.templates import REFERENCES, Dialogue, Marked, errors_of, several_turns
from synth.engines.local.chat_format import ChatFormat, Piece

COUNT = 8


@pytest.fixture(scope="module")
def dialogues() -> list[Dialogue]:
    return several_turns(40)


@pytest.mark.parametrize("name", REFERENCES)
def test_a_policy_learns_what_its_engine_shows_it(dialogues: list[Dialogue], name: str) -> None:
    errors, _ = errors_of(name, dialogues, COUNT)
    assert errors == 0


def without_first(ids: list[int]) -> list[int]:
    return ids[1:]


@pytest.mark.parametrize("method", ["_head_ids", "turn_ids", "suffix_ids"])
def test_one_token_that_is_missing_is_an_error_of_every_conversation(
    dialogues: list[Dialogue], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    true: Callable[..., list[int]] = getattr(ChatFormat, method)
    monkeypatch.setattr(ChatFormat, method, lambda *given: without_first(true(*given)))
    errors, _ = errors_of("qwen3", dialogues, COUNT)
    assert errors == COUNT


def test_a_mask_that_is_shifted_is_an_error_of_every_conversation(dialogues: list[Dialogue], monkeypatch: pytest.MonkeyPatch) -> None:
    """Given rows whose answers lose the token that ends them to what comes after, then no conversation is right."""
    true = ChatFormat.pieces

    def shifted(*given: object) -> list[Piece]:
        pieces = []
        for piece in true(*given):  # type: ignore[arg-type]
            ends = len(piece.ids) - piece.is_turn
            pieces += [Piece(piece.ids[:ends], piece.is_turn), *([Piece(piece.ids[ends:], False)] if piece.is_turn else [])]
        return pieces

    monkeypatch.setattr(ChatFormat, "pieces", shifted)
    errors, _ = errors_of("qwen2_5", dialogues, COUNT)
    assert errors == COUNT


def test_an_answer_that_reads_back_as_another_is_an_error(dialogues: list[Dialogue], monkeypatch: pytest.MonkeyPatch) -> None:
    true = ChatFormat.read
    monkeypatch.setattr(ChatFormat, "read", lambda *given: true(*given).model_copy(update={"content": "another"}))
    errors, _ = errors_of("llama3_1", dialogues, COUNT)
    assert errors == COUNT


def test_the_model_s_own_rendering_has_a_say(dialogues: list[Dialogue], monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a reference that keeps the tools where Mistral's template has them, before the last user message, then none is equal."""
    kept: Callable[[str], str] = str
    changed = dict(REFERENCES) | {"mistral_v3": dataclasses.replace(REFERENCES["mistral_v3"], adjust=kept)}
    monkeypatch.setattr(templates, "REFERENCES", changed)
    errors, _ = errors_of("mistral_v3", dialogues, COUNT)
    assert errors == COUNT
    marked: Marked = templates.reference("mistral_v3", templates.chat_tokenizer("mistral_v3", ["a"]), dialogues[0])
    assert len(marked[0]) == len(marked[1])
