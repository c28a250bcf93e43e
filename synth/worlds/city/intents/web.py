"""Looking something up on the web, and reading the page: the facts that its text states."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from synth.worlds.base import misfit
from synth.worlds.city.intents.base import WEB
from synth.worlds.city.intents.plan_parts import tell_one_of
from synth.worlds.city.map.city_map import CityBased
from synth.worlds.city.plan_recorder import Script
from synth.worlds.city.tools import web_corpus
from synth.worlds.city.tools.travel_policies import POLICIES
from synth.worlds.city.vocabulary import TODAY, label


def look_up(script: Script, kind: str, key: str, query: str) -> dict[str, Any]:
    """Searches for a page and gives the fields of its text; the page must have been seen.

    Raises:
        Unsolvable: the search did not show the page.
    """
    results = script.call(WEB, {"query": query})["results"]
    city = script.city
    assert isinstance(script.world, CityBased)
    number = web_corpus.page_number(kind, script.world.own_key(kind, key))
    if number is None:
        raise misfit("there is no page of this name")
    identifier = web_corpus.document_id(city.seed, number)
    if all(result["doc_id"] != identifier for result in results):
        raise misfit("the page was not found")
    script.evidence("id", identifier)
    return web_corpus.pages()[number].fill(city.seed, number, city.transit)


def tell_policy(script: Script, topic: str) -> None:
    """Looks a travel policy up and states its two numbers."""
    words = label("topic", topic, script.language)
    fields = look_up(script, "policy", topic, f"travel policy {words}" if script.language == "en" else f"出行政策 {words}")
    script.fact("number", fields["a"])
    script.fact("number", fields["b"])
    en, zh = (text.format(**fields) for text in POLICIES[topic][:2])
    script.say(en, zh)


def tell_opening(script: Script, venue: str, date: int | None = None) -> None:
    """Looks the opening rules of a kind of venue up and states closing day and last admission.

    date: of the day out that they are asked for. Its weekday, and today's, may then be spoken of beside the closing day.
    """
    words = label("venue", venue, script.language)
    fields = look_up(script, "opening", venue, f"opening rules {words}" if script.language == "en" else f"开放规定 {words}")
    closed = fields["day"]
    spoken_of = () if date is None else [(TODAY + timedelta(days=days)).weekday() for days in (0, date)]
    others = [day for place, day in enumerate(web_corpus.WEEKDAYS) if day != closed and place not in spoken_of]
    tell_one_of(script, _spellings(closed), map(_spellings, others))
    script.fact("time", fields["last"])
    script.say(f"Closed on {closed[0]}, last admission at {fields['last']}.", f"{closed[1]}闭馆，最晚{fields['last']}入场。")


def _spellings(day: web_corpus.Texts) -> tuple[str, ...]:
    """Monday, 周一, Mondays, 星期一."""
    en, zh = day
    return en, zh, f"{en}s", zh.replace("周", "星期")
