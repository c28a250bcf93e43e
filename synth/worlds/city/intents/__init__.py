"""The intents of the city, by name."""

from __future__ import annotations

from synth.worlds.base import Intent
from synth.worlds.city.intents import about, route, rules, search, travel, trips, unaided

_CLASSES: tuple[type[Intent], ...] = (
    search.PoiSearchNear, search.PoiSearchInDistrict, search.ExploreAround, about.TopList, search.MeetInTheMiddle, search.MeetAndGo,
    search.AlongRoute, about.PlaceDetails, about.PlaceReputation, about.ComparePlaces, about.AreaSummary, route.Route, route.ArriveBy,
    route.StopsRoute, route.CompareRoutes, route.CompareModes, route.ReachInTime, route.TransitRoute, route.TransitFare,
    route.TrafficStatus, trips.RouteToBestNearby, trips.HalfDayTrip, trips.DayTrip, trips.LongTrip, trips.RainPlan, travel.TrainSchedule,
    travel.FlightPrice, travel.RoundTripCost, travel.TrainOrFlight, travel.BudgetTravel, travel.CompareDestinations,
    travel.DestinationIdeas, travel.DestinationFor, travel.WeatherNow, travel.WeatherInDistrict, travel.WeatherInCity, rules.TravelPolicy,
    rules.OpeningRule, rules.EntryRequirement, rules.LineStatus, unaided.SystemControl, unaided.RemindMe, unaided.TrafficAlert,
    unaided.BookTickets, unaided.BookRoom, unaided.RouteWithoutOrigin, unaided.TicketsWithoutOrigin, unaided.ForecastWithoutPlace,
    unaided.TicketsBeyondHorizon, unaided.ForecastBeyondHorizon, unaided.ImpossibleWish, unaided.ImpossibleWishInDistrict,
    unaided.CompareGivenPrices, unaided.CompareGivenTimes, unaided.FitsGivenTime, unaided.NearestOfGiven,
)  # fmt: skip

INTENTS: dict[str, Intent] = {intent.name: intent() for intent in _CLASSES}
