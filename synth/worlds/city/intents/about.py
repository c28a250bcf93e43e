"""What is known: ranking lists, attributes and reputation of a place, comparisons of places, summaries of an area."""

from __future__ import annotations

from synth.worlds.base import misfit
from synth.worlds.city.intents.base import FORECAST, LOCATE_TWO_OR_THREE, RANKING, SEARCH, WEB, CityIntent, Step, optional, required
from synth.worlds.city.intents.plan_parts import Row, Slots, both, distinct, forecast, locate, name_of, rows_of, tell_weather
from synth.worlds.city.intents.web import look_up
from synth.worlds.city.plan_recorder import Script
from synth.worlds.city.vocabulary import label


class TopList(CityIntent):
    """What leads the coffee shop ranking in Old Town District?"""

    name = "top_list"
    leaf = "discovery.poi_search.open_ended_poi_exploration"
    domain = "information"
    slots = required(category="category", district="district") + optional(limit="count")
    objects = frozenset({"category"})
    steps = (Step(RANKING),)

    def report(self, script: Script, slots: Slots) -> None:
        leaders = rank(script, slots["category"], slots["district"], slots.get("limit"))
        names = [name_of(script, item) for item in leaders]
        script.say(f"The list is led by {', '.join(names)}.", f"榜单前列是{'、'.join(names)}。")


class PlaceDetails(CityIntent):
    """When is Jade Museum open?"""

    name = "place_details"
    leaf = "discovery.information_query.basic_attributes"
    domain = "map"
    slots = required(place="place", attribute="attribute")
    objects = frozenset({"place", "attribute"})
    steps = (Step(SEARCH),)

    def report(self, script: Script, slots: Slots) -> None:
        row = locate(script, slots["place"])
        script.evidence("id", row["place_id"])
        attribute = slots["attribute"]
        if attribute == "hours":
            opens, closes = row["hours"].split("-")
            script.fact("time", opens)
            script.fact("time", closes)
            script.say(f"Opening hours: {opens} to {closes}.", f"营业时间是{opens}至{closes}。")
        elif attribute == "cost":
            yuan = row.get("price", row.get("average_cost"))
            if yuan is None:
                raise misfit("nothing is charged there")
            script.fact("price", yuan)
            script.say(f"It costs {yuan} yuan.", f"价格为{yuan}元。")
        elif attribute == "phone":
            script.fact("word", row["phone"])
            script.say(f"The number is {row['phone']}.", f"电话号码是{row['phone']}。")
        else:
            script.fact("word", row["address" if script.language == "en" else "address_zh"], row["address"], row["address_zh"])
            script.say(f"The address is {row['address']}.", f"地址是{row['address_zh']}。")


class PlaceReputation(CityIntent):
    """What do people think of Jade Museum?"""

    name = "place_reputation"
    leaf = "discovery.information_query.reputation_and_reviews"
    domain = "map"
    slots = required(place="place")
    objects = frozenset({"place"})
    steps = (Step(SEARCH),)

    def report(self, script: Script, slots: Slots) -> None:
        row = locate(script, slots["place"])
        script.evidence("id", row["place_id"])
        script.fact("number", row["rating"])
        script.fact("number", row["reviews"])
        script.say(f"It is rated {row['rating']} from {row['reviews']} reviews.", f"评分{row['rating']}，共{row['reviews']}条点评。")


class ComparePlaces(CityIntent):
    """Which of these two or three has the higher rating?"""

    name = "compare_places"
    leaf = "planning_and_decision.solution_comparison.poi"
    domain = "map"
    slots = required(place_a="place", place_b="place", criterion="poi_criterion") + optional(place_c="place")
    objects = frozenset({"place_a"})
    steps = LOCATE_TWO_OR_THREE

    def report(self, script: Script, slots: Slots) -> None:
        keys = [slots[name] for name in ("place_a", "place_b", "place_c") if name in slots]
        distinct(*keys)
        rows = [locate(script, key) for key in keys]
        criterion = slots["criterion"]
        values = [row["hours"].split("-")[1] if criterion == "closing" else row[criterion] for row in rows]
        value = max(values)
        if values.count(value) > 1:
            raise misfit("they are equal")
        best = rows[values.index(value)]
        others = [name for row in rows if row is not best for name in both(row)]
        script.fact("name", name_of(script, best), *both(best), rivals=others)
        script.fact("time" if criterion == "closing" else "number", value)
        for row in rows:
            script.evidence("id", row["place_id"])
        script.say(f"{best['name']}: {value}.", f"{best['name_zh']}是{value}。")


class AreaSummary(CityIntent):
    """What is Riverside District like, which hotpot restaurants lead there, and where is something fun for kids?"""

    name = "area_summary"
    leaf = "discovery.area_summaries"
    domain = "information"
    slots = required(district="district") + optional(category="category", theme="theme", date="date")
    objects = frozenset({"district"})
    steps = (Step(WEB), Step(RANKING, when={"category"}), Step(SEARCH, when={"theme"}), Step(FORECAST, when={"date"}))

    def report(self, script: Script, slots: Slots) -> None:
        district = label("district", slots["district"], script.language)
        guide = look_up(
            script, "district", slots["district"], f"{district} area guide" if script.language == "en" else f"{district}区域介绍"
        )
        sight = guide["sight"]
        script.fact("number", guide["people"])
        script.fact("name", sight[0 if script.language == "en" else 1], *sight)
        script.say(
            f"About {guide['people']} people live in {district}, and {sight[0]} is praised.",
            f"{district}约有{guide['people']}人，{sight[1]}评价很好。",
        )
        if "category" in slots:
            leaders = rank(script, slots["category"], slots["district"], None)
            script.say(f"The ranking is led by {leaders[0]['name']}.", f"榜首是{leaders[0]['name_zh']}。")
        if "theme" in slots:
            query = label("theme", slots["theme"], script.language)
            rows = rows_of(script.call(SEARCH, {"query": query, "region": district}))
            script.fact("name", name_of(script, rows[0]), *(name for row in rows for name in both(row)))
            script.say(f"Try {rows[0]['name']}.", f"可以去{rows[0]['name_zh']}。")
        if "date" in slots:
            tell_weather(script, forecast(script, district, slots["date"]))


def rank(script: Script, category: str, district: str, items: int | None) -> list[Row]:
    """The leaders of the top-rated list: as many as asked for, else the first; their names are facts.

    Raises:
        Unsolvable: the list is shorter.
    """
    arguments = {"query": label("category", category, script.language), "region": label("district", district, script.language)}
    result = script.call(RANKING, {**arguments, "max_items": items})
    leaders: list[Row] = result["lists"][0]["items"][: items or 1] if result["lists"] else []
    if len(leaders) < (items or 1):
        raise misfit("the list is too short")
    script.evidence("id", result["lists"][0]["list_id"])
    for item in leaders:
        script.fact("name", name_of(script, item), *both(item))
    return leaders
