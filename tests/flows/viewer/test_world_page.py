"""Pages of worlds and clusters: what is known of them, calls in a fresh copy, and programs of others that are not started."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient

from flows.viewer import viewed_worlds
from flows.viewer.tool_graph_drawing import draw_tools
from flows.viewer.viewed_store import ViewedStore
from flows.viewer.viewed_worlds import cut, state_changes, state_table, within_time
from flows.viewer.web_app import create_app
from storage.errors import BadInput
from storage.store import Store
from synth.clusters.business_clusters import cluster_tools
from synth.clusters.cluster_store import add_worlds, save_clusters
from synth.clusters.edges import ToolFeatures, find_edges
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.worlds.live.live_world import LiveWorld, make_live_world
from synth.worlds.live.lock import LiveTool, Lock
from synth.writing.new_spec import new_spec
from tests.storage.conftest import write
from tests.synth.live_servers.specs import hostile_spec


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The clusters of the hotel and the shop, a task of a world that is not known here, and a trajectory of the hotel."""
    made = Store(tmp_path_factory.mktemp("worlds") / "inn" / "store")
    save_clusters(made, [*WORLDS["hotel"].tools, *WORLDS["retail"].tools])
    (cluster, *_) = cluster_tools([*WORLDS["hotel"].tools, *WORLDS["retail"].tools])
    blueprint = {"blueprint_id": "blueprint-0000000000000001", "cluster_id": cluster.id, "status": "accepted", "mode_family": "C>F"}
    trajectory = {"trajectory_id": "trajectory-0000000000000001", "cluster_id": cluster.id, "world": cluster.world, "accepted": True}
    made.commit(
        [
            write(made, "tasks", {"task_id": "task-0000000000000001", "world": "vanished@1a2b3c4d", "spec": "{}"}),
            write(made, "blueprints", blueprint),
            write(made, "trajectories", trajectory | {"messages": "[]", "mode_coarse": "C>F"}),
        ]
    )
    return made


@pytest.fixture
def app(store: Store) -> TestClient:
    return client(store)


def client(store: Store) -> TestClient:
    return TestClient(create_app(ViewedStore(store.root)), base_url="http://127.0.0.1:8790", raise_server_exceptions=False)


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def called(app: TestClient, world: str, *lines: str, seed: int = 3) -> str:
    return app.get(f"/worlds/{world}/call?{urlencode([('seed', seed), *(('call', line) for line in lines)])}").text


def test_worlds_of_the_store_come_first_with_their_numbers(app: TestClient) -> None:
    page = app.get("/worlds").text
    used, others = page.split("Others that Headrace knows here")

    assert '<a href="/worlds/hotel">' in used and '<a href="/worlds/hotel">' not in others
    assert '<a href="/worlds/banking">' in others
    assert "/tasks?world=vanished%401a2b3c4d" in used
    assert "not known here" in used


def test_a_world_shows_its_tools_rules_and_edges(app: TestClient) -> None:
    page = app.get("/worlds/hotel").text
    edges = find_edges(ToolFeatures.of(WORLDS["hotel"].tools))

    assert "book_room(guest, room, arrival, nights, people)" in page
    assert "Only platinum guests book more than 10 nights." in page
    assert page.count('class="arrow') == len(edges) > 0
    assert f"{len(edges)} arrows as a list" in page
    for edge in edges:
        assert f"<code>{edge.source.partition('.')[2]}</code>" in page


def test_the_arrows_of_a_chosen_tool_stand_out(app: TestClient) -> None:
    edges = find_edges(ToolFeatures.of(WORLDS["hotel"].tools))
    of_tool = sum("search_rooms" in (edge.source.partition(".")[2], edge.target.partition(".")[2]) for edge in edges)

    assert "of-chosen" not in app.get("/worlds/hotel").text
    assert app.get("/worlds/hotel?tool=search_rooms").text.count("of-chosen") == of_tool > 0


def test_a_drawing_has_every_tool_inside_it_and_goes_from_left_to_right() -> None:
    tools = WORLDS["hotel"].tools
    drawing = draw_tools(tools, find_edges(ToolFeatures.of(tools)), {tool.id: "#" for tool in tools})
    boxes = {box.id: box for box in drawing.boxes}

    assert boxes.keys() == {tool.id for tool in tools}
    assert all(box.x >= 0 and box.x + box.width <= drawing.width and box.y + box.height <= drawing.height for box in drawing.boxes)
    assert len({(box.x, box.y) for box in drawing.boxes}) == len(tools)
    assert any(boxes[edge.source].x < boxes[edge.target].x for edge in drawing.edges)


def test_the_rows_of_a_seed_are_those_of_its_world(app: TestClient) -> None:
    rows = WORLDS["hotel"](7).state()["room"]
    page = app.get("/worlds/hotel/rows?seed=7&rows=room&first=50").text

    assert "51 to 60 of 60" in page
    assert f"<code>{list(rows)[50]}</code>" in page and f"<code>{list(rows)[49]}</code>" not in page
    assert "no state that calls could change" in app.get("/worlds/city/rows").text
    assert "the state has no castle" in app.get("/worlds/hotel/rows?rows=castle").text


def test_a_call_shows_its_result_and_what_it_changed(app: TestClient) -> None:
    world = WORLDS["retail"](3)
    stock = world.state()["product"]["p03"]["stock"]
    page = text_of(called(app, "retail", 'buy {"user": "u00", "product": "p03"}', "get_order order=o00"))

    assert '"bought": 1' in page
    assert re.search(rf"product / p03 / stock\s*{stock}\s*{stock - 1}", page)
    assert re.search(r"purchases / u00-p03\s*none\s*1|purchases", page)
    assert "The state is as it was." in page, "the second call reads"
    assert "headrace worlds try retail --seed 3" in page
    assert text_of(called(app, "retail", 'buy {"user": "u00", "product": "p03"}', "get_order order=o00")) == page, "nothing was kept"


def test_a_form_adds_its_call_to_the_address(app: TestClient) -> None:
    fields = {
        "seed": "3",
        "add": "buy",
        "tool": "buy",
        "call": "get_order {}",
        "arg.user": "u00",
        "arg.product": "p03",
        "arg.quantity": "2",
    }
    answer = app.get("/worlds/retail/call", params=fields, follow_redirects=False)

    assert answer.status_code == 303
    line = 'buy {"user": "u00", "product": "p03", "quantity": 2}'
    expected = urlencode([("seed", "3"), ("tool", "buy"), ("call", "get_order {}"), ("call", line)])
    assert answer.headers["location"] == f"/worlds/retail/call?{expected}#form"


def test_a_bad_call_is_answered_by_the_world(app: TestClient) -> None:
    page = text_of(called(app, "retail", "buy nonsense", "steal {}"))

    assert "refused or failed" in page
    assert "arguments are not JSON" in page
    assert "no such tool" in page


def test_no_text_of_an_address_becomes_a_part_of_a_page(app: TestClient) -> None:
    attack = '<script>alert("1")</script>{{ 7 * 7 }}'
    for page in (called(app, "retail", f"buy {attack}"), called(app, "retail", f'buy {{"user": {json.dumps(attack)}}}')):
        assert "<script>alert" not in page
        assert "alert(" in text_of(page)


def test_programs_are_shown_and_not_run(app: TestClient) -> None:
    assert "run_python" in app.get("/worlds/hotel").text
    assert "It runs a program in a sandbox" in app.get("/worlds/hotel/call?tool=run_python").text
    refused = app.get("/worlds/hotel/call", params={"call": 'run_python {"code": "1"}'})
    assert (refused.status_code, "the viewer starts none" in refused.text) == (404, True)


def test_a_world_that_is_not_known_here_shows_what_the_store_says_of_it(app: TestClient) -> None:
    page = app.get("/worlds/vanished@1a2b3c4d")

    assert page.status_code == 200
    assert "the store does not hold its spec" in page.text
    assert "1 task</a>" in page.text
    assert "Call a tool" not in page.text
    assert app.get("/worlds/nowhere").status_code == 404
    assert app.get("/worlds/vanished@1a2b3c4d/call").status_code == 404


def test_a_world_of_the_users_own_is_made_from_the_spec_in_the_store(tmp_path: Path) -> None:
    own = compile_spec(parse_text(new_spec(("en",))))
    made = Store(tmp_path / "store")
    WORLDS.register(own)
    try:
        add_worlds(made, [own.name])
    finally:
        WORLDS.forget(own.name)
    try:
        page = client(made).get(f"/worlds/{own.name}")
        assert page.status_code == 200
        assert own.tools[0].name in page.text
        assert "your own, kept in this store" in client(made).get("/worlds").text
    finally:
        WORLDS.forget(own.name)


@pytest.fixture
def live() -> Iterator[type[LiveWorld]]:
    tool = LiveTool(name="attack", description="Attacks.", parameters={"type": "object", "properties": {}}, changes_state=True)
    spec = hostile_spec()
    world = make_live_world(spec, Lock(spec=spec.id, tools=(tool,), restore="live"))
    WORLDS.register(world)
    yield world
    WORLDS.forget(world.name)
    world.pool.close()


def test_no_program_of_a_live_world_is_started(app: TestClient, live: type[LiveWorld], monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[str]()
    for name in ("lease", "start"):
        monkeypatch.setattr(live.pool, name, lambda *_, name=name: started.append(name))

    shown = app.get(f"/worlds/{live.name}")
    assert (shown.status_code, "attack()" in shown.text, "the viewer starts none" in shown.text) == (200, True, True)
    for path in ("call?call=attack", "rows"):
        refused = app.get(f"/worlds/{live.name}/{path}")
        assert (refused.status_code, "the viewer starts none" in refused.text) == (404, True)
    assert started == []


def test_clusters_are_listed_by_tool_and_world(app: TestClient, store: Store) -> None:
    everything = app.get("/clusters?part=true").text
    of_shop = app.get("/clusters?part=true&text=CANCEL_order").text

    assert 'href="/clusters/cluster-' in everything
    assert "1 to 1 of 1" in of_shop and "<mark>cancel_order</mark>" in of_shop
    assert "nothing fits" in app.get("/clusters?part=true&text=castle").text


def test_a_cluster_shows_its_graph_and_what_was_made_with_it(app: TestClient, store: Store) -> None:
    (cluster, *_) = cluster_tools([*WORLDS["hotel"].tools, *WORLDS["retail"].tools])
    page = app.get(f"/clusters/{cluster.id}").text

    assert page.count('class="arrow') == len(cluster.edges)
    assert f'href="/worlds/{cluster.world}#tool-{sorted(cluster.tool_names)[0]}"' in page
    assert f"/trajectories?cluster={cluster.id}" in page
    assert "/item/blueprint-0000000000000001" in page
    assert "no cluster" in app.get("/clusters/cluster-ffff").text


# ---- parts ------------------------------------------------------------------------------------------------------------


def test_changes_are_told_value_by_value() -> None:
    before = {"room": {"r1": {"price": 1, "free": True}, "r2": {"price": 2}}, "acts": []}
    after = {"room": {"r1": {"price": 1, "free": False}, "r3": {"price": 3}}, "acts": [1]}

    told = [(change.place, change.before, change.after) for change in state_changes(before, after)]

    assert told == [
        (("room", "r1", "free"), "true", "false"),
        (("room", "r2", "price"), "2", None),
        (("room", "r3", "price"), None, "3"),
        (("acts",), "[]", "[1]"),
    ]
    assert state_changes(before, before) == []


def test_a_part_of_a_state_without_rows_is_a_table_too() -> None:
    state = {"counts": {"a": 1}, "acts": ["x", {"tool": "buy"}], "day": 5}

    assert state_table(state, "counts", 0, 9).rows == [("a", ["1"])]
    assert state_table(state, "acts", 0, 9).rows == [("0", ["", "x"]), ("1", ["buy", ""])]
    assert state_table(state, "day", 0, 9).rows == [("", ["5"])]


def test_a_long_result_is_cut_and_says_so() -> None:
    assert cut("x" * (viewed_worlds.MOST_SHOWN + 7)).endswith("7 more characters are not shown")


def test_calls_that_take_too_long_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewed_worlds, "TIME_LIMIT_S", 0.2)
    ended = list[str]()

    def work(check_time: Callable[[], None]) -> None:
        try:
            while True:
                time.sleep(0.05)
                check_time()
        finally:
            ended.append("ended")

    with pytest.raises(BadInput, match="takes longer than"):
        within_time(work)
    time.sleep(0.3)
    assert ended == ["ended"], "and does not go on unseen"
    assert within_time(lambda _: 5) == 5
