"""Edges between servers: universal values cross servers, ids do not, and substitutes have no edge."""

from __future__ import annotations

from typing import Any

import pytest

from storage.records import Tool
from synth.clusters.business_clusters import cluster_tools
from synth.clusters.cross_server_edges import MAX_TARGETS, ServerProfiles, find_bridges
from synth.clusters.edges import ToolFeatures


def tool(server: str, name: str, description: str, *parameters: str, label: str = "Web Search & Research", **more: Any) -> Tool:
    schema = {"type": "object", "properties": {parameter: {"type": "string"} for parameter in parameters}, "required": list(parameters)}
    return Tool(name=name, description=description, parameters=schema, server=server, domain=label, **more)


SEARCH = tool("exa-0", "web_search", "Search the web and return pages of websites with their content.", "query")
SCRAPE = tool("firecrawl-1", "scrape_page", "Scrape pages of websites into markdown, with their headings and links.", "url")


def pairs(*tools: Tool) -> set[tuple[str, str, str]]:
    return {(edge.source, edge.target, edge.entity) for edge in find_bridges(ToolFeatures.of(tools), [tool.id for tool in tools])}


def test_a_url_crosses_servers() -> None:
    assert pairs(SEARCH, SCRAPE) == {("exa-0.web_search", "firecrawl-1.scrape_page", "url")}


def test_two_tools_without_another_edge_have_no_bridge() -> None:
    both = ToolFeatures.of([SEARCH, SCRAPE])

    assert find_bridges(both, []) == []
    assert find_bridges(both, [SEARCH.id]) == find_bridges(both, [SCRAPE.id]) != []


def test_an_id_crosses_no_servers() -> None:
    lister = tool("acme-0", "list_web_pages", "List the pages of websites on the web.")
    taker = tool("firecrawl-1", "scrape_page", "Scrape pages of websites from the web.", "page_id")

    assert pairs(lister, taker) == set()


@pytest.mark.parametrize(
    ("name", "description"),
    [
        ("issue_get_url", "Gets the URL of an issue, a page of websites with its content."),
        ("create_issue_link", "Creates a link of two pages of websites with their content."),
    ],
)
def test_a_url_of_something_else_crosses_no_servers(name: str, description: str) -> None:
    assert pairs(tool("tracker-0", name, description, "issue_id"), SCRAPE) == set()
    assert pairs(tool("tracker-0", "get_url", description, "issue_id"), SCRAPE) == {("tracker-0.get_url", "firecrawl-1.scrape_page", "url")}


def test_a_list_of_places_gives_coordinates_only_if_its_description_says_so() -> None:
    weather = tool("sky-1", "get_forecast", "Forecast for the coordinates of a location.", "latitude", "longitude")
    shops = tool("store-2", "list_locations", "Lists the locations of the forecast.")
    geocoder = tool("map-3", "list_locations", "Lists the locations of the forecast with their coordinates.")

    assert pairs(shops, weather) == set()
    assert pairs(geocoder, weather) == {("map-3.list_locations", "sky-1.get_forecast", "coordinates")}


def test_a_tool_has_few_bridges_with_one_tool_per_server() -> None:
    takers = [tool(f"alpha{n}-{n}", f"scrape_{part}", SCRAPE.description, "url") for n in range(9) for part in ("page", "text")]

    bridges = pairs(SEARCH, *takers)

    assert len(bridges) == MAX_TARGETS
    assert len({target.partition(".")[0] for _, target, _ in bridges}) == MAX_TARGETS


def test_tools_of_worlds_have_no_bridge() -> None:
    assert pairs(SEARCH.model_copy(update={"world": "city"}), SCRAPE) == set()


def test_a_tool_that_takes_a_value_is_no_source_of_it() -> None:
    shortener = tool("tiny-2", "list_web_pages", "List pages of websites on the web and their content.", "url")

    assert pairs(shortener, SCRAPE) == set()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("todoist-integration-9", "todoist-task-manager-277"),
        ("exa-search-0", "exa-server-354"),
        ("yahoo-finance-server-167", "yahoo-finance-data-and-visualization-server-463"),
        ("github-3", "mcp-github-projects-1529"),
        ("firecrawl-web-scraping-server-655", "firecrawl-web-scraping-server-936"),
        ("semantic-scholar-academic-research-mcp-329", "ai-research-assistant-semantic-scholar-32"),
    ],
)
def test_servers_of_one_product_are_substitutes_by_name(left: str, right: str) -> None:
    first, second = tool(left, "search_web", "Searches the web for pages."), tool(right, "open_page", "Reads a page of the web.", "url")

    assert ServerProfiles.of(ToolFeatures.of([first, second])).are_substitutes(left, right)
    assert pairs(first, second) == set()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("exa-search-0", "firecrawl-web-scraping-server-655"),
        ("google-maps-server-1", "weather-forecast-server-1004"),
        ("brave-search-server-2", "fetch-server-440"),
    ],
)
def test_servers_of_two_products_are_no_substitutes(left: str, right: str) -> None:
    first, second = tool(left, "find", "Looks for matches."), tool(right, "open_it", "Loads what an address holds.", "url")

    assert not ServerProfiles.of(ToolFeatures.of([first, second])).are_substitutes(left, right)


def test_a_server_that_names_the_others_product_is_a_substitute() -> None:
    official = tool("firecrawl-1", "crawl", "Starts a crawl.", "url")
    wrapper = tool("web-reader-2", "read_pages", "Reads web pages through Firecrawl.", "query")
    other = tool("web-reader-3", "read_pages", "Reads web pages.", "query")
    servers = ServerProfiles.of(ToolFeatures.of([official, wrapper, other]))

    assert servers.are_substitutes("firecrawl-1", "web-reader-2")
    assert not servers.are_substitutes("firecrawl-1", "web-reader-3")


def test_servers_with_equal_tool_names_are_substitutes() -> None:
    names = ("find_hotel", "book_room", "cancel_stay")
    left = [tool("alpha-1", name, f"{name} somewhere.") for name in names]
    right = [tool("beta-2", name, f"Another text about {name}.") for name in (*names[:2], "rate_guest")]

    assert ServerProfiles.of(ToolFeatures.of([*left, *right])).are_substitutes("alpha-1", "beta-2")


def test_a_cluster_spans_partners_but_no_substitutes() -> None:
    partners = [
        SEARCH,
        tool("exa-0", "list_web_sources", "List the websites that are searched on the web.", "query"),
        SCRAPE,
        tool("firecrawl-1", "start_crawl", "Start to crawl pages of websites of the web.", "url"),
        tool("firecrawl-1", "get_crawl", "Get the state of a crawl of pages of websites.", "crawl_id"),
    ]
    substitutes = [tool.model_copy(update={"server": "exa-9"}) if tool.server == "firecrawl-1" else tool for tool in partners]

    def spans(tools: list[Tool]) -> bool:
        return any(len({tool.partition(".")[0] for tool in cluster.tool_ids}) > 1 for cluster in cluster_tools(tools))

    assert spans(partners)
    assert not spans(substitutes)
