"""Ways through the city: routes by mode, departure and preference, comparisons of them, whether one is in time, traffic, transit, fares."""

from __future__ import annotations

from synth.worlds.base import Shape
from synth.worlds.city.intents.base import ROUTES, CityIntent, Given, Steps, optional, required

_ENDS = frozenset({"origin", "destination"})


def _one_route(places: int) -> Shape:
    steps = Steps()
    steps.add(ROUTES, *steps.locate(places))
    return steps.shape


class Route(CityIntent):
    """How do I get from A to B, cycling, by way of C, leaving at 14:30, avoiding tolls?"""

    name = "route"
    leaf = "planning_and_decision.route_planning"
    domain = "map"
    slots = required(origin="place", destination="place") + optional(mode="mode", waypoint="place", depart="clock", preference="preference")
    objects = _ENDS

    def shape(self, slot_names: Given) -> Shape:
        return _one_route(3 if "waypoint" in slot_names else 2)


class ArriveBy(CityIntent):
    """When must I leave A to be at B by 18:00?"""

    name = "arrive_by"
    leaf = "planning_and_decision.route_planning"
    domain = "map"
    slots = required(origin="place", destination="place", arrive="clock") + optional(mode="mode", waypoint="place")
    objects = _ENDS

    def shape(self, slot_names: Given) -> Shape:
        return _one_route(3 if "waypoint" in slot_names else 2)


class StopsRoute(CityIntent):
    """From A to B with one or two stops on the way."""

    name = "stops_route"
    leaf = "planning_and_decision.itinerary_planning.simple_route"
    domain = "map"
    slots = required(origin="place", stop_a="place", stop_b="place", destination="place") + optional(
        stop_c="place", mode="mode", depart="clock", preference="preference"
    )
    objects = _ENDS

    def shape(self, slot_names: Given) -> Shape:
        return _one_route(5 if "stop_c" in slot_names else 4)


class CompareRoutes(CityIntent):
    """Is it quicker to take tolls or to avoid them?"""

    name = "compare_routes"
    leaf = "planning_and_decision.solution_comparison.route"
    domain = "map"
    slots = required(origin="place", destination="place", preference="preference") + optional(waypoint="place", depart="clock")
    objects = _ENDS

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        places = steps.locate(3 if "waypoint" in slot_names else 2)
        steps.add(ROUTES, *places)
        steps.add(ROUTES, *places)
        return steps.shape


class CompareModes(CityIntent):
    """Cycling or the metro: which is faster from A to B?"""

    name = "compare_modes"
    leaf = "planning_and_decision.solution_comparison.transportation_mode"
    domain = "map"
    slots = required(origin="place", destination="place", mode_a="mode", mode_b="mode") + optional(mode_c="mode", depart="clock")
    objects = _ENDS

    def shape(self, slot_names: Given) -> Shape:
        return _one_route(2)


class ReachInTime(CityIntent):
    """Can I get from A to B within 40 minutes?"""

    name = "reach_in_time"
    leaf = "planning_and_decision.feasibility_assessment"
    domain = "map"
    slots = required(origin="place", destination="place", minutes="minutes") + optional(mode="mode", depart="clock", waypoint="place")
    objects = _ENDS

    def shape(self, slot_names: Given) -> Shape:
        return _one_route(3 if "waypoint" in slot_names else 2)


class TransitRoute(CityIntent):
    """Which lines bring me from A to B?"""

    name = "transit_route"
    leaf = "dynamic_information.realtime_traffic_and_transit.public_transit_schedules_and_routes"
    domain = "map"
    slots = required(origin="place", destination="place") + optional(depart="clock")
    objects = _ENDS

    def shape(self, slot_names: Given) -> Shape:
        return _one_route(2)


class TransitFare(CityIntent):
    """What does the ride from A to B cost by public transit?"""

    name = "transit_fare"
    leaf = "dynamic_information.realtime_traffic_and_transit.public_transit_fares"
    domain = "map"
    slots = required(origin="place", destination="place")
    objects = _ENDS

    def shape(self, slot_names: Given) -> Shape:
        return _one_route(2)


class TrafficStatus(CityIntent):
    """How is the traffic between A and B?"""

    name = "traffic_status"
    leaf = "dynamic_information.realtime_traffic_and_transit.road_traffic_status"
    domain = "map"
    slots = required(origin="place", destination="place") + optional(depart="clock", preference="preference")
    objects = _ENDS

    def shape(self, slot_names: Given) -> Shape:
        return _one_route(2)
