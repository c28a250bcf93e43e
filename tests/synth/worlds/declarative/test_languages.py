"""The languages of a world: English alone, Chinese alone, or both, and nothing in another one."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.records import Language, canonical_json
from storage.store import Store
from synth.run.config import SynthesisConfig
from synth.run.setup import SynthesisSetup
from synth.run.synthesize import synthesize
from synth.tasks.assessment import assess
from synth.text.claims import has_chinese
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.worlds.declarative.languages import check_chinese, languages_of
from synth.writing.new_spec import new_spec

SMALL = SynthesisConfig(accepted=24, calibration=16, subsample=16, max_proposals=80, drills={})
_LETTERS = re.compile(r"[a-z]{3,}")


def starter(*languages: Language) -> Any:
    return parse_text(new_spec(languages))


def refusals(change: Callable[[Any], object], *languages: Language) -> list[str]:
    raw = copy.deepcopy(starter(*languages))
    change(raw)
    with pytest.raises(SpecError) as caught:
        compile_spec(raw)
    return [str(problem) for problem in caught.value.problems]


def made_in(world: type[SpecWorld], store: Store) -> str:
    """All text that a synthesis in a world commits."""
    WORLDS.register(world)
    synthesize(store, SMALL.model_copy(update={"worlds": (world.name,), "drills": {world.name: 6}}))
    tables = store.query("SELECT DISTINCT table_name FROM information_schema.tables")["table_name"]
    frames = [store.query(f'SELECT COLUMNS(*)::VARCHAR FROM "{name}"') for name in tables]
    assert sum(frame.height for frame in frames) > 100
    return "\n".join(str(value) for frame in frames for row in frame.iter_rows() for value in row)


# ---- worlds of one language -------------------------------------------------------------------------------------------------------


def test_nothing_that_an_english_world_makes_is_in_chinese(tmp_path: Path) -> None:
    world = compile_spec(starter("en"))
    assert world.languages == ("en",)
    shown = canonical_json([tool.model_dump(mode="json") for tool in world.tools]) + world.system_prompt
    assert not has_chinese(shown)
    assert not has_chinese(made_in(world, Store(tmp_path / "store")))


def test_requests_and_answers_of_a_chinese_world_are_in_chinese(tmp_path: Path) -> None:
    world = compile_spec(starter("zh"))
    store = Store(tmp_path / "store")
    made_in(world, store)
    assert store.query("SELECT DISTINCT language FROM tasks")["language"].to_list() == ["zh"]
    requests = [request for texts in assess(world, 60, seed=0).requests.values() for request in texts]
    assert requests
    assert [request for request in requests if not has_chinese(request)] == []
    assert _LETTERS.findall(re.sub(r"\w+_\w+", "", world.system_prompt)) == []


def test_a_bilingual_world_speaks_both(tmp_path: Path) -> None:
    world = compile_spec(starter("en", "zh"))
    store = Store(tmp_path / "store")
    assert has_chinese(made_in(world, store))
    assert store.query("SELECT DISTINCT language FROM trajectories ORDER BY ALL")["language"].to_list() == ["en", "zh"]


def test_a_bilingual_spec_with_one_language_named_is_a_world_of_that_one() -> None:
    """Given the starter in both languages with `languages: [en]` written into it, then it is the world of the starter in English."""
    raw = starter("en", "zh") | {"languages": ["en"]}
    world = compile_spec(raw)
    assert world.languages == ("en",)
    assert world.domain.entities["loan"].noun.en == "loan"
    assert not has_chinese(world.system_prompt)
    assert set(assess(world, 20, seed=0).requests) == {"en"}


# ---- which languages ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "languages"),
    [
        ({"about": "a shop", "actions": {"buy": {"verb": "buy"}}}, ("en",)),
        ({"about": "a shop", "actions": {"buy": {"verb": "buy / 购买"}}}, ("en", "zh")),
        ({"about": "一家商店", "actions": {"buy": {"verb": "购买"}}}, ("zh",)),
        ({"about": "a shop", "actions": {"buy": {"verb": "buy", "sets": {"shop.stock": "shop.stock / 2"}}}}, ("en",)),
        ({"languages": ["zh", "en"], "about": "a shop"}, ("en", "zh")),
        ({"languages": ["zh"], "about": "a shop / 商店"}, ("zh",)),
    ],
)
def test_the_languages_are_those_of_the_words_unless_they_are_named(raw: Any, languages: tuple[str, ...]) -> None:
    assert languages_of(raw) == languages


@pytest.mark.parametrize("named", [["en", "fr"], "english", [], ["en", ["zh"]]])
def test_other_languages_are_refused_alone(named: Any) -> None:
    """Given a language that there is not, then this is the only problem: the words are read as what they are."""
    assert refusals(lambda raw: raw.update(languages=named), "en") == [
        "languages: expected [en], [zh] or [en, zh]: the languages of your users"
    ]


def test_chinese_in_an_english_world_is_refused() -> None:
    told = refusals(lambda raw: raw["actions"]["return_tool"].update(verb="归还"), "en")
    assert told == [
        "actions.return_tool.verb: Chinese characters in a world of English alone; write English, or `languages: [en, zh]` at the top"
    ]


# ---- each half in its language ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["renew / renew", "renew / 请renew", "renew / Renew"])
def test_english_in_a_chinese_half_is_refused(verb: str) -> None:
    told = refusals(lambda raw: raw["actions"]["renew_loan"].update(verb=verb), "en", "zh")
    assert [each.partition(": the ")[0] for each in told] == ["actions.renew_loan.verb"]
    assert "the Chinese words contain English" in told[0]


def test_chinese_in_an_english_half_is_refused() -> None:
    told = refusals(lambda raw: raw["actions"]["renew_loan"].update(verb="续借 / 续借"), "en", "zh")
    assert told == ["actions.renew_loan.verb: the English words contain Chinese; English comes first, as: english / 中文"]


@pytest.mark.parametrize(
    "text", ["换SIM卡", "连接Wi-Fi", "VPN", "把{loan}再留{days}", "_ GB以上", "16GB", "iPhone手机", "重置app密码", "25km", "发到a@b.org"]
)
def test_what_chinese_writes_in_latin_letters_is_chinese(text: str) -> None:
    check_chinese(text)


def test_a_name_may_be_in_latin_letters_in_chinese_text() -> None:
    check_chinese("Clara Rossi", is_name=True)
    with pytest.raises(ValueError, match="contain English"):
        check_chinese("Clara Rossi")


# ---- what a run asks for ------------------------------------------------------------------------------------------------------------


def test_a_share_of_chinese_that_no_world_can_give_is_said(tmp_path: Path) -> None:
    world = compile_spec(starter("en"))
    WORLDS.register(world)

    def notes(folder: str, **settings: Any) -> tuple[str, ...]:
        return SynthesisSetup(Store(tmp_path / folder), SynthesisConfig(worlds=(world.name,), drills={}, **settings)).notes

    assert "though synthesize.chinese_share is 0.5: no chosen world speaks Chinese" in " ".join(notes("a", chinese_share=0.5))
    assert "speaks" not in " ".join(notes("b"))
