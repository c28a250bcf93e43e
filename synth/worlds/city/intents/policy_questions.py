"""What the web knows: travel policies, opening rules, entry requirements, the state of a transit line."""

from __future__ import annotations

from synth.worlds.city.intents.base import WEB, CityIntent, Step, required
from synth.worlds.city.intents.plan_parts import Slots, tell_one_of
from synth.worlds.city.intents.web import look_up, tell_opening, tell_policy
from synth.worlds.city.map.transit import STATUSES
from synth.worlds.city.plan_recorder import Script
from synth.worlds.city.vocabulary import label


class _WebIntent(CityIntent):
    domain = "information"
    steps = (Step(WEB),)


class TravelPolicy(_WebIntent):
    """May I take a power bank on a flight?"""

    name = "travel_policy"
    leaf = "rules_and_policies.travel_policies"
    slots = required(topic="topic")
    objects = frozenset({"topic"})

    def report(self, script: Script, slots: Slots) -> None:
        tell_policy(script, slots["topic"])


class OpeningRule(_WebIntent):
    """On which day are museums closed, and when is last admission?"""

    name = "opening_rule"
    leaf = "rules_and_policies.venue_rules.opening_rules"
    slots = required(venue="venue")
    objects = frozenset({"venue"})

    def report(self, script: Script, slots: Slots) -> None:
        tell_opening(script, slots["venue"])


class EntryRequirement(_WebIntent):
    """How long ahead must I reserve for an art gallery, and how large may a group be?"""

    name = "entry_requirement"
    leaf = "rules_and_policies.venue_rules.entry_requirements"
    slots = required(venue="venue")
    objects = frozenset({"venue"})

    def report(self, script: Script, slots: Slots) -> None:
        words = label("venue", slots["venue"], script.language)
        query = f"entry requirements {words}" if script.language == "en" else f"入场要求 {words}"
        fields = look_up(script, "entry", slots["venue"], query)
        script.fact("number", fields["ahead"])
        script.fact("number", fields["group"])
        script.say(
            f"Reserve {fields['ahead']} days ahead; groups of up to {fields['group']} people.",
            f"提前{fields['ahead']}天预约；团队不超过{fields['group']}人。",
        )


class LineStatus(_WebIntent):
    """Is Metro Line 3 running normally?"""

    name = "line_status"
    leaf = "dynamic_information.realtime_traffic_and_transit.public_transit_realtime_status"
    slots = required(line="line")
    objects = frozenset({"line"})

    def report(self, script: Script, slots: Slots) -> None:
        words = label("line", slots["line"], script.language)
        fields = look_up(script, "line", slots["line"], f"service status {words}" if script.language == "en" else f"运行状态 {words}")
        en, zh = fields["status"]
        tell_one_of(script, (en, zh), [names for names in STATUSES if names != (en, zh)])
        script.fact("number", fields["delay"])
        script.fact("number", fields["headway"])
        script.say(
            f"{words}: {en}, delay {fields['delay']} minutes, every {fields['headway']} minutes.",
            f"{words}：{zh}，延误{fields['delay']}分钟，每{fields['headway']}分钟一班。",
        )
