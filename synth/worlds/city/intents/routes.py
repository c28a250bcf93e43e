"""Ways through the city: routes by mode, departure and preference, comparisons of them, whether one is in time, traffic, transit, fares."""

from __future__ import annotations

from synth.worlds.base import misfit
from synth.worlds.city.intents.base import ROUTES, SEARCH, CityIntent, Step, optional, required
from synth.worlds.city.intents.plan_parts import Row, Slots, compute, distinct, locate, mode_of, moment, tell_one_of, tell_route
from synth.worlds.city.plan_recorder import Script
from synth.worlds.city.tools.routing import TRAFFIC
from synth.worlds.city.vocabulary import MODES

_ENDS = frozenset({"origin", "destination"})
_ROUTE = (Step(SEARCH), Step(SEARCH), Step(ROUTES, 0, 1))
_ROUTE_BY_WAYPOINT = (Step(SEARCH), Step(SEARCH, when={"waypoint"}), Step(SEARCH), Step(ROUTES, 0, 1, 2))


def _stops(script: Script, slots: Slots, *names: str) -> list[Row]:
    """The places of these slots, as far as they are given, looked up in order."""
    keys = [slots[name] for name in names if name in slots]
    distinct(*keys)
    return [locate(script, key) for key in keys]


def tell_whether(script: Script, fits: bool) -> None:
    """Tells whether there is time enough."""
    value, rival = (("yes", "来得及"), ("no", "来不及"))[:: 1 if fits else -1]
    script.fact("word", value[0] if script.language == "en" else value[1], *value, rivals=rival)
    script.say(f"{value[0].capitalize()}.", f"{value[1]}。")


class Route(CityIntent):
    """How do I get from A to B, cycling, by way of C, leaving at 14:30, avoiding tolls?"""

    name = "route"
    leaf = "planning_and_decision.route_planning"
    domain = "map"
    slots = required(origin="place", destination="place") + optional(mode="mode", waypoint="place", depart="clock", preference="preference")
    objects = _ENDS
    steps = _ROUTE_BY_WAYPOINT

    def report(self, script: Script, slots: Slots) -> None:
        stops = _stops(script, slots, "origin", "waypoint", "destination")
        routes = compute(script, stops, mode_of(slots), departure_time=moment(slots), preference=slots.get("preference"))
        tell_route(script, routes[0], with_arrival="depart" in slots)


class ArriveBy(CityIntent):
    """When must I leave A to be at B by 18:00?"""

    name = "arrive_by"
    leaf = "planning_and_decision.route_planning"
    domain = "map"
    slots = required(origin="place", destination="place", arrive="clock") + optional(mode="mode", waypoint="place")
    objects = _ENDS
    steps = _ROUTE_BY_WAYPOINT

    def report(self, script: Script, slots: Slots) -> None:
        stops = _stops(script, slots, "origin", "waypoint", "destination")
        route = compute(script, stops, mode_of(slots), arrival_time=moment(slots, "arrive"))[0]
        leaves = route["departure"][-5:]
        script.fact("time", leaves)
        script.fact("number", route["duration_min"])
        script.say(f"Leave at {leaves}: it takes {route['duration_min']} minutes.", f"{leaves}出发：需要{route['duration_min']}分钟。")


class StopsRoute(CityIntent):
    """From A to B with one or two stops on the way."""

    name = "stops_route"
    leaf = "planning_and_decision.itinerary_planning.simple_route"
    domain = "map"
    slots = required(origin="place", stop_a="place", stop_b="place", destination="place") + optional(
        stop_c="place", mode="mode", depart="clock", preference="preference"
    )
    objects = _ENDS
    steps = (*[Step(SEARCH)] * 3, Step(SEARCH, when={"stop_c"}), Step(SEARCH), Step(ROUTES, 0, 1, 2, 3, 4))

    def report(self, script: Script, slots: Slots) -> None:
        stops = _stops(script, slots, "origin", "stop_a", "stop_b", "stop_c", "destination")
        routes = compute(script, stops, mode_of(slots), departure_time=moment(slots), preference=slots.get("preference"))
        tell_route(script, routes[0], with_arrival="depart" in slots)


class CompareRoutes(CityIntent):
    """Is it quicker to take tolls or to avoid them?"""

    name = "compare_routes"
    leaf = "planning_and_decision.solution_comparison.route"
    domain = "map"
    slots = required(origin="place", destination="place", preference="preference") + optional(waypoint="place", depart="clock")
    objects = _ENDS
    steps = (*_ROUTE_BY_WAYPOINT, Step(ROUTES, 0, 1, 2))

    def report(self, script: Script, slots: Slots) -> None:
        stops = _stops(script, slots, "origin", "waypoint", "destination")
        usual = compute(script, stops, departure_time=moment(slots))[0]
        other = compute(script, stops, departure_time=moment(slots), preference=slots["preference"])[0]
        if usual["route_id"] == other["route_id"]:
            raise misfit("the ways are the same")
        for route in (usual, other):
            script.fact("number", route["duration_min"])
            script.fact("number", route["distance_m"])
        script.say(
            f"The usual way takes {usual['duration_min']} minutes ({usual['distance_m']} m), "
            f"the other one {other['duration_min']} minutes ({other['distance_m']} m).",
            f"一般路线需要{usual['duration_min']}分钟（{usual['distance_m']}米），另一条需要{other['duration_min']}分钟（{other['distance_m']}米）。",
        )


class CompareModes(CityIntent):
    """Cycling or the metro: which is faster from A to B?"""

    name = "compare_modes"
    leaf = "planning_and_decision.solution_comparison.transportation_mode"
    domain = "map"
    slots = required(origin="place", destination="place", mode_a="mode", mode_b="mode") + optional(mode_c="mode", depart="clock")
    objects = _ENDS
    steps = _ROUTE

    def report(self, script: Script, slots: Slots) -> None:
        modes = [slots[name] for name in ("mode_a", "mode_b", "mode_c") if name in slots]
        distinct(*modes)
        routes = compute(script, _stops(script, slots, "origin", "destination"), modes, departure_time=moment(slots))
        fastest = min(routes, key=lambda route: int(route["duration_min"]))
        others = [route for route in routes if route is not fastest]
        if any(route["duration_min"] == fastest["duration_min"] for route in others):
            raise misfit("they are equally fast")
        en, zh = MODES[fastest["mode"]]
        script.fact(
            "word", en if script.language == "en" else zh, en, zh, rivals=[name for route in others for name in MODES[route["mode"]]]
        )
        script.fact("number", fastest["duration_min"])
        script.say(f"Fastest is {en}: {fastest['duration_min']} minutes.", f"{zh}最快：{fastest['duration_min']}分钟。")


class ReachInTime(CityIntent):
    """Can I get from A to B within 40 minutes?"""

    name = "reach_in_time"
    leaf = "planning_and_decision.feasibility_assessment"
    domain = "map"
    slots = required(origin="place", destination="place", minutes="minutes") + optional(mode="mode", depart="clock", waypoint="place")
    objects = _ENDS
    steps = _ROUTE_BY_WAYPOINT

    def report(self, script: Script, slots: Slots) -> None:
        stops = _stops(script, slots, "origin", "waypoint", "destination")
        route = compute(script, stops, mode_of(slots), departure_time=moment(slots))[0]
        tell_whether(script, route["duration_min"] <= slots["minutes"])
        tell_route(script, route, with_arrival="depart" in slots)


class TransitRoute(CityIntent):
    """Which lines bring me from A to B?"""

    name = "transit_route"
    leaf = "dynamic_information.realtime_traffic_and_transit.public_transit_schedules_and_routes"
    domain = "map"
    slots = required(origin="place", destination="place") + optional(depart="clock")
    objects = _ENDS
    steps = _ROUTE

    def report(self, script: Script, slots: Slots) -> None:
        route = compute(script, _stops(script, slots, "origin", "destination"), "transit", departure_time=moment(slots))[0]
        if not route["legs"]:
            raise misfit("walking is faster than any line")
        for leg in route["legs"]:
            script.fact("name", leg["line" if script.language == "en" else "line_zh"], leg["line"], leg["line_zh"])
        script.say(
            f"Take {', then '.join(leg['line'] for leg in route['legs'])}.",
            f"乘坐{'，再换乘'.join(leg['line_zh'] for leg in route['legs'])}。",
        )
        tell_route(script, route, with_arrival="depart" in slots)


class TransitFare(CityIntent):
    """What does the ride from A to B cost by public transit?"""

    name = "transit_fare"
    leaf = "dynamic_information.realtime_traffic_and_transit.public_transit_fares"
    domain = "map"
    slots = required(origin="place", destination="place")
    objects = _ENDS
    steps = _ROUTE

    def report(self, script: Script, slots: Slots) -> None:
        route = compute(script, _stops(script, slots, "origin", "destination"), "transit")[0]
        if not route["legs"]:
            raise misfit("walking is faster than any line")
        script.fact("price", route["fare_yuan"])
        script.say(f"The ride costs {route['fare_yuan']} yuan.", f"票价{route['fare_yuan']}元。")


class TrafficStatus(CityIntent):
    """How is the traffic between A and B?"""

    name = "traffic_status"
    leaf = "dynamic_information.realtime_traffic_and_transit.road_traffic_status"
    domain = "map"
    slots = required(origin="place", destination="place") + optional(depart="clock", preference="preference")
    objects = _ENDS
    steps = _ROUTE

    def report(self, script: Script, slots: Slots) -> None:
        stops = _stops(script, slots, "origin", "destination")
        route = compute(script, stops, traffic_aware=True, departure_time=moment(slots), preference=slots.get("preference"))[0]
        script.evidence("word", route["traffic"])
        names = (route["traffic"], route["traffic_zh"])
        tell_one_of(script, names, [(en, zh) for _, en, zh in TRAFFIC if en != names[0]])
        script.say(f"Traffic is {route['traffic']}.", f"路况{route['traffic_zh']}。")
        tell_route(script, route)
