"""What the web knows: travel policies, opening rules, entry requirements, the state of a transit line."""

from __future__ import annotations

from synth.worlds.base import Shape
from synth.worlds.city.intents.base import WEB, CityIntent, Given, required


class _WebIntent(CityIntent):
    domain = "information"

    def shape(self, slot_names: Given) -> Shape:
        return Shape(((WEB, ()),))


class TravelPolicy(_WebIntent):
    """May I take a power bank on a flight?"""

    name = "travel_policy"
    leaf = "rules_and_policies.travel_policies"
    slots = required(topic="topic")
    objects = frozenset({"topic"})


class OpeningRule(_WebIntent):
    """On which day are museums closed, and when is last admission?"""

    name = "opening_rule"
    leaf = "rules_and_policies.venue_rules.opening_rules"
    slots = required(venue="venue")
    objects = frozenset({"venue"})


class EntryRequirement(_WebIntent):
    """How long ahead must I reserve for an art gallery, and how large may a group be?"""

    name = "entry_requirement"
    leaf = "rules_and_policies.venue_rules.entry_requirements"
    slots = required(venue="venue")
    objects = frozenset({"venue"})


class LineStatus(_WebIntent):
    """Is Metro Line 3 running normally?"""

    name = "line_status"
    leaf = "dynamic_information.realtime_traffic_and_transit.public_transit_realtime_status"
    slots = required(line="line")
    objects = frozenset({"line"})
