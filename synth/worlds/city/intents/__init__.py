"""The intents of the city, by name."""

from __future__ import annotations

from synth.worlds.base import Intent
from synth.worlds.city.intents import about, find_places, policy_questions, routes, travel, trips, unaided
from synth.worlds.city.intents.base import CityIntent

_SOLVABLE: tuple[type[CityIntent], ...] = (
    find_places.PoiSearchNear, find_places.PoiSearchInDistrict, find_places.ExploreAround, about.TopList, find_places.MeetInTheMiddle,
    find_places.MeetAndGo, find_places.AlongRoute, about.PlaceDetails, about.PlaceReputation, about.ComparePlaces, about.AreaSummary,
    routes.Route, routes.ArriveBy, routes.StopsRoute, routes.CompareRoutes, routes.CompareModes, routes.ReachInTime, routes.TransitRoute,
    routes.TransitFare, routes.TrafficStatus, trips.RouteToBestNearby, trips.HalfDayTrip, trips.DayTrip, trips.LongTrip, trips.RainPlan,
    travel.TrainSchedule, travel.FlightPrice, travel.RoundTripCost, travel.TrainOrFlight, travel.BudgetTravel, travel.CompareDestinations,
    travel.DestinationIdeas, travel.DestinationFor, travel.WeatherNow, travel.WeatherInDistrict, travel.WeatherInCity,
    policy_questions.TravelPolicy, policy_questions.OpeningRule, policy_questions.EntryRequirement, policy_questions.LineStatus,
)  # fmt: skip

_FROM_CONVERSATION: tuple[type[CityIntent], ...] = (
    unaided.CompareGivenPrices, unaided.CompareGivenTimes, unaided.FitsGivenTime, unaided.NearestOfGiven,
)  # fmt: skip

INTENTS: dict[str, Intent] = {
    intent.name: intent for intent in (*(kind() for kind in _SOLVABLE), *unaided.REFUSALS, *(kind() for kind in _FROM_CONVERSATION))
}
