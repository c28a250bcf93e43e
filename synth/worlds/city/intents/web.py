"""Looking something up on the web, and reading the page: the facts that its text states."""

from __future__ import annotations

from typing import Any

from synth.worlds.city import corpus
from synth.worlds.city.intents.base import WEB
from synth.worlds.city.intents.parts import misfit
from synth.worlds.city.policies import POLICIES
from synth.worlds.city.script import Script
from synth.worlds.city.vocabulary import label


def look_up(script: Script, kind: str, key: str, query: str) -> dict[str, Any]:
    """Searches for a page and gives the fields of its text; the page must have been seen.

    Raises:
        Unsolvable: the search did not show the page.
    """
    results = script.call(WEB, {"query": query})["results"]
    city = script.city
    number = corpus.page_number(kind, key)
    identifier = corpus.document_id(city.seed, number)
    if all(result["doc_id"] != identifier for result in results):
        raise misfit("the page was not found")
    script.evidence("id", identifier)
    return corpus.pages()[number].fill(city.seed, number, city.transit)


def tell_policy(script: Script, topic: str) -> None:
    """Looks a travel policy up and tells its two numbers."""
    words = label("topic", topic, script.language)
    fields = look_up(script, "policy", topic, f"travel policy {words}" if script.language == "en" else f"出行政策 {words}")
    script.fact("number", fields["a"])
    script.fact("number", fields["b"])
    en, zh = (text.format(**fields) for text in POLICIES[topic][:2])
    script.say(en, zh)


def tell_opening(script: Script, venue: str) -> None:
    """Looks the opening rules of a kind of venue up and tells closing day and last admission."""
    words = label("venue", venue, script.language)
    fields = look_up(script, "opening", venue, f"opening rules {words}" if script.language == "en" else f"开放规定 {words}")
    en, zh = fields["day"]
    script.fact("word", en if script.language == "en" else zh, en, zh)
    script.fact("time", fields["last"])
    script.say(f"Closed on {en}, last admission at {fields['last']}.", f"{zh}闭馆，最晚{fields['last']}入场。")
