"""The taxonomy of spatio-temporal queries: 5 top classes, 16 groups, 30 leaves (STAgent, 2512.24957, section on taxonomy evolution).

27 leaf names were seen in the published TravelBench data; three complete the tree to the paper's counts: the two leaves of
`rules_and_policies.venue_rules`, and `application_interaction.booking_and_payment`. A group without leaves of its own is its leaf.
"""

from __future__ import annotations

LEAVES: tuple[str, ...] = (
    "rules_and_policies.travel_policies",
    "rules_and_policies.venue_rules.opening_rules",
    "rules_and_policies.venue_rules.entry_requirements",
    "discovery.poi_search.constrained_poi_search",
    "discovery.poi_search.open_ended_poi_exploration",
    "discovery.poi_search.spatial_optimized_poi_search",
    "discovery.destination_discovery.open_ended",
    "discovery.destination_discovery.constrained",
    "discovery.information_query.basic_attributes",
    "discovery.information_query.reputation_and_reviews",
    "discovery.area_summaries",
    "planning_and_decision.route_planning",
    "planning_and_decision.itinerary_planning.simple_route",
    "planning_and_decision.itinerary_planning.short_trip",
    "planning_and_decision.itinerary_planning.medium_trip",
    "planning_and_decision.itinerary_planning.long_trip",
    "planning_and_decision.solution_comparison.route",
    "planning_and_decision.solution_comparison.transportation_mode",
    "planning_and_decision.solution_comparison.destination",
    "planning_and_decision.solution_comparison.poi",
    "planning_and_decision.feasibility_assessment",
    "dynamic_information.realtime_traffic_and_transit.public_transit_schedules_and_routes",
    "dynamic_information.realtime_traffic_and_transit.road_traffic_status",
    "dynamic_information.realtime_traffic_and_transit.public_transit_fares",
    "dynamic_information.realtime_traffic_and_transit.public_transit_realtime_status",
    "dynamic_information.realtime_weather",
    "dynamic_information.dynamic_pricing_and_availability",
    "application_interaction.system_control",
    "application_interaction.notification_trigger",
    "application_interaction.booking_and_payment",
)

GROUPS: tuple[str, ...] = tuple(dict.fromkeys(".".join(leaf.split(".")[:2]) for leaf in LEAVES))
CLASSES: tuple[str, ...] = tuple(dict.fromkeys(leaf.split(".")[0] for leaf in LEAVES))
