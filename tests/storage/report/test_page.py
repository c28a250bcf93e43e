"""The report shows what the store holds, needs no network, and trusts no text."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from storage.report import sections
from storage.report.charts import learning_chart
from storage.report.controller_section import evolution
from storage.report.learning_curves import curves, text_curves
from storage.report.page import write_report
from storage.report.sections import chat
from storage.store import Store
from tests.storage.conftest import funnel_parts, write

ATTACK = '<script>alert(\'x\')</script><img src="http://evil/x.png" onerror=alert(1)> </script> {{ 7*7 }} & "quotes"'
CALL = {"id": "c1", "type": "function", "function": {"name": f"search {ATTACK}", "arguments": '{"category": "lamp", "max": 30}'}}
MESSAGES = [
    {"role": "system", "content": ATTACK},
    {"role": "user", "content": f"找一盏灯 {ATTACK}"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": f'{{"error": "none {ATTACK.replace(chr(34), "")}"}}', "tool_call_id": "c1"},
    {"role": "assistant", "content": "没有。"},
]


class Page(HTMLParser):
    """Elements that are open at the end, scripts, what would be loaded, handlers, and the text that a reader sees."""

    VOID = ("meta", "br", "img", "link", "input")
    IMPLIED_END = ("td", "th", "tr")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts: list[tuple[dict, str]] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text, self.policy, self.styles = "", "", ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "meta" and dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"]
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag not in self.VOID and tag not in self.IMPLIED_END:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.IMPLIED_END:
            assert self.open.pop() == tag

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif inside == "style":
            self.styles += data
        else:
            self.text += data


def traces(charts: list[dict], name: str) -> list[dict]:
    return [trace for chart in charts for trace in chart["data"] if trace.get("name") == name]


def page(store: Store, path: Path) -> Page:
    return Page(write_report(store, path).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Store:
    """A store in which every text that a stranger may have written is an attack."""
    store = Store(tmp_path_factory.mktemp("hostile") / "store")
    trajectory = {"trajectory_id": "tr", "domain": ATTACK, "language": "zh", "teacher": ATTACK, "accepted": True, "mode_coarse": ATTACK}
    query = {"query_id": "q", "run": "r", "text": ATTACK}
    store.commit(
        [
            write(store, "queries", query | {"source": "f", "row": 0}),
            write(store, "verdicts", {"query_id": "q", "run": "r", "step": ATTACK, "kept": False, "reason": ATTACK}),
            write(
                store,
                "funnel",
                {"run": "r", "position": 0, "step": ATTACK, "rows_in": 1, "kept": 0, "dropped": 1, "reasons": json.dumps({ATTACK: 1})},
            ),
            write(store, "trajectories", trajectory | {"complexity": 3.0, "messages": json.dumps(MESSAGES)}),
            write(
                store,
                "clusters",
                {"cluster_id": "c", "domain": ATTACK, "tool_ids": [f"s.{ATTACK}", "s.b"], "edges": json.dumps([[f"s.{ATTACK}", "s.b"]])},
            ),
            write(store, "stages", {"stage_id": "s", "name": ATTACK, "output_policy_id": "p"}),
            write(store, "policies", {"policy_id": "p", "stage_id": "s"}),
            write(
                store,
                "tags",
                {"task_id": "t", "policy_id": "p", "purpose": ATTACK, "difficulty": 1, "k": 8, "successes": 3, "region": "uncertain"},
            ),
            write(store, "promotions", {"policy_id": "p", "position": 0, "passed": False, "checks": json.dumps({ATTACK: False})}),
            write(
                store,
                "evaluations",
                {
                    "evaluation_id": "e",
                    "policy_id": "p",
                    "use": "eval_in",
                    "decoding": "sampled",
                    "facet": "all",
                    "tasks": 1,
                    "samples": 4,
                    "rate": 0.5,
                },
            ),
        ]
    )
    return store


def test_no_row_of_a_heat_map_mixes_two_regions(tmp_path):
    """Given tasks of 11 and of 12 successes in 16 draws, uncertain and certain by the sample's thresholds."""
    store = Store(tmp_path / "store")
    tagged = {"policy_id": "p", "purpose": "probe", "difficulty": 1, "k": 16}
    store.commit(
        [
            write(store, "policies", {"policy_id": "p", "stage_id": ""}),
            write(
                store,
                "tags",
                tagged | {"task_id": "below", "successes": 11, "region": "uncertain"},
                tagged | {"task_id": "at", "successes": 12, "region": "certain"},
            ),
        ]
    )
    (shown,) = sections.tags(store)["maps"]
    assert [(line["successes"], line["region"]) for line in shown["lines"] if any(count for count, _ in line["cells"])] == [
        (6, "certain"),
        (5, "uncertain"),
    ]


def test_every_section_is_there(sample, tmp_path):
    shown = page(sample.store, tmp_path / "report.html")
    assert "Not run yet" not in shown.text
    for words in (
        "1 in 3 kept",
        "Held-out sets",
        "Duplicates beside what they duplicate",
        "near duplicate 1",
        "call, then final answer",
        "uncertain 0",
        "certain 1",
        "0.250",
        "no forgetting",
        "policy-2",
        "q-4",
        "search_products",
        "call, then final answer",
        "trajectory-task-1",
    ):
        assert words in shown.text, words
    (charts,) = [json.loads(text) for attributes, text in shown.scripts if attributes.get("id") == "charts"]
    places = [value for _, name, value in shown.attributes if name == "data-chart"]
    assert places == [str(number) for number in range(len(charts))]
    assert {trace["type"] for chart in charts for trace in chart["data"]} == {"bar", "scatter", "histogram", "sankey"}
    entropies = [(trace["x"], trace["y"]) for name in ("domain entropy", "mode entropy coarse") for trace in traces(charts, name)]
    assert entropies == [([0, 1, 2], [1.0, 1.25, 1.5])] * 2
    assert not traces(charts, "tool coverage"), "it is not in bits"


def test_what_the_controller_asked_for_stands_beside_what_came_of_it(sample, tmp_path):
    found = evolution(sample.store)
    (row,) = found["rounds"]
    assert [row[name] for name in ("asked", "accepted", "hits", "rejected", "unplanned", "low")] == [3, 2, 1, 1, 0, 1.0]
    assert row["reason"] == "goal_0.facts"
    families = dict(found["maps"][0]["lines"])
    assert [cell[:2] for cell in families["C>F"]] == [(1, 3), (0, 0), (0, 0)]
    assert [cell[:2] for cell in families["A>P"]] == [(1, 0), (0, 0), (0, 0)]
    assert dict(found["operators"]) == {"inject_fault": 1, "distractors": 1}
    shown = page(sample.store, tmp_path / "report.html").text
    for words in ("rejected: goal_0.facts", "as asked", "ask the user, then parallel calls", "3.70", "mode family by complexity band"):
        assert words in shown, words


def test_calibration_is_said_to_be_one_and_no_rejection(tmp_path):
    """Given conversations that only measured complexity, with figures of round -1, and one rejected plan."""
    store = Store(tmp_path / "store")
    figure = {"run": "r", "metric": "domain_entropy_bits", "value": 1.0, "n": 9}
    store.commit(
        [
            write(store, "diversity", figure | {"round": -1}, figure | {"round": 0}),
            write(
                store,
                "blueprints",
                *({"blueprint_id": f"c{n}", "status": "calibration", "round": -1} for n in range(3)),
                {"blueprint_id": "bad", "status": "rejected", "reason": "goal_0.facts", "round": 0},
            ),
        ]
    )
    shown = page(store, tmp_path / "report.html")
    assert "3 conversations were made to measure which complexity is low, middle and high (calibration)" in shown.text
    assert "by the check that failed first: goal_0.facts 1." in shown.text
    (charts,) = [json.loads(text) for attributes, text in shown.scripts if attributes.get("id") == "charts"]
    assert [trace["x"] for trace in traces(charts, "domain entropy")] == [[0]]
    assert "-1" not in re.sub(r"Difficulty.*", "", shown.text)


def test_a_sample_of_no_task_names_its_blueprint(tmp_path):
    store = Store(tmp_path / "store")
    row = {"trajectory_id": "t", "blueprint_id": "b", "accepted": True, "complexity": 1.0, "mode_coarse": "C+>F", "messages": "[]"}
    row |= {"domain": "retail", "language": "en", "teacher": "scripted"}
    store.commit([write(store, "trajectories", row)])
    shown = " ".join(page(store, tmp_path / "report.html").text.split())
    assert "its plan is b" in shown and "None" not in shown
    assert "call (repeated), then final answer" in shown


def test_every_table_scrolls_in_its_own_box(sample, tmp_path):
    html = re.sub(
        r"<style>.*?</style>|<script.*?</script>", "", write_report(sample.store, tmp_path / "report.html").read_text(), flags=re.S
    )
    for start in (match.start() for match in re.finditer("<table", html)):
        before = html[:start]
        assert before.count('<div class="scroll">') > 0
        assert before.rfind('<div class="scroll">') > before.rfind("</table>"), html[start : start + 200]


def test_the_ladder_is_of_the_latest_training_alone_and_of_its_latest_measurement(build, tmp_path):
    store = build(tmp_path / "store").store
    (before,) = _ladder_traces(store)
    assert before["x"] == [0, 1]
    stage = {"name": "sft1", "algorithm": "sft", "release_id": "r", "split": "seed"}
    evaluation = {"use": "eval_in", "decoding": "sampled", "facet": "all", "tasks": 1, "samples": 4, "pass_k": "{}"}
    policies = {"policy-4": ("sft1", None, 0.5), "policy-3": ("sft2", "policy-4", 0.75)}
    for n, (policy, (name, parent, rate)) in enumerate(policies.items(), 3):
        store.commit(
            [
                write(
                    store,
                    "stages",
                    stage | {"stage_id": f"again-{n}", "name": name, "input_policy_id": parent, "output_policy_id": policy},
                    n=n,
                ),
                write(store, "policies", {"policy_id": policy, "stage_id": f"again-{n}"}, n=n),
                write(store, "evaluations", evaluation | {"evaluation_id": f"first-{n}", "policy_id": policy, "rate": 0.1}, n=n),
            ]
        )
        store.commit([write(store, "evaluations", evaluation | {"evaluation_id": f"e-{n}", "policy_id": policy, "rate": rate}, n=n + 10)])
    store.commit([write(store, "promotions", {"policy_id": "policy-4", "position": 0, "passed": True, "checks": "{}"}, n=3)])
    (after,) = _ladder_traces(store)
    assert (after["x"], after["y"]) == ([0, 1], [0.5, 0.75])
    found = sections.ladder(store, lambda _: {})
    assert [row["policy_id"] for row in found["rows"]] == ["policy-4", "policy-3"]
    assert [row["policy_id"] for row in found["gates"]] == ["policy-4"]
    assert sections.lineage(store, lambda _: {})["policy"] == "policy-4", "promoted last, though at a lower position than policy-2"


def test_learning_curves_are_those_of_the_files_beside_the_models(build, tmp_path):
    """Given two SFT stages whose rows lie in one file, then each has a curve of its loss and of the loss's running mean; and none where the
    file is not there, has other metrics, or is spoilt."""
    store, figures = build(tmp_path / "store").store, []
    file = store.root / "models" / "metrics.jsonl"

    def found() -> list[dict]:
        figures.clear()
        return curves(store, lambda figure: figures.append(figure) or {})

    assert found() == []
    file.parent.mkdir()
    losses = [float(step % 2) for step in range(50)]
    file.write_text("".join(json.dumps({"step": step, "loss": loss, "reward": 1.0}) + "\n" for step, loss in enumerate(losses)))
    assert [(one["name"], one["steps"], one["metrics"]) for one in found()] == [("sft1", 50, ["loss"]), ("sft2", 50, ["loss"])]
    raw, mean = [list(trace.y) for trace in figures[0].data]
    assert raw == losses
    assert mean == [0.0] + [0.5] * 49, "over two steps"
    assert "Learning curves" in page(store, tmp_path / "report.html").text
    for spoilt in ('{"step": 1, "reward": 1.0}\n', '{"step": 1, "loss": "x"}\n', '{"step": 1, "lo', ""):
        file.write_text(spoilt)
        assert found() == []
    assert text_curves(store) == ""


def test_learning_curves_as_text_are_bars_from_the_least_to_the_greatest_value(build, tmp_path):
    store = build(tmp_path / "store").store
    file = store.root / "models" / "metrics.jsonl"
    file.parent.mkdir()
    file.write_text("".join(json.dumps({"step": step, "loss": 8.0 - step}) + "\n" for step in range(8)))
    first = text_curves(store).splitlines()[0]
    assert first.split() == ["sft1", "(8", "steps)", "loss", "8.000", "█▇▆▅▄▃▂▁", "1.000"]
    file.write_text("".join(json.dumps({"step": step, "loss": 1.0}) + "\n" for step in range(480)))
    assert text_curves(store).splitlines()[1].count("▁") == 48, "of an even curve, with ten steps a bar"


def test_of_many_steps_evenly_chosen_ones_are_drawn():
    steps = pl.DataFrame({"step": range(25_000), "loss": [1.0] * 25_000})
    (raw, _) = learning_chart(steps, ["loss"]).data
    assert list(raw.x) == list(range(0, 25_000, 25))


def _ladder_traces(store: Store) -> list[dict]:
    figures: list = []
    sections.ladder(store, lambda figure: figures.append(figure) or {})
    (figure,) = figures
    assert list(figure.layout.xaxis.ticktext) == ["sft1", "sft2"]
    return [trace.to_plotly_json() for trace in figure.data]


def test_it_is_one_whole_page(sample, tmp_path):
    assert page(sample.store, tmp_path / "report.html").open == []


@pytest.mark.parametrize("which", ["sample", "hostile"])
def test_nothing_is_loaded_from_anywhere(which, request, tmp_path):
    found = request.getfixturevalue(which)
    shown = page(found if which == "hostile" else found.store, tmp_path / "report.html")
    loads = [(tag, name, value) for tag, name, value in shown.attributes if name in ("src", "srcset", "action", "data", "poster")]
    links = [value for _, name, value in shown.attributes if name == "href" and not value.startswith("#")]
    assert loads == [], "and a link loads nothing before a reader follows it"
    assert all(re.fullmatch(r"http://127\.0\.0\.1:8790/item/[\w.%/@-]+", link) for link in links), "to the viewer of this machine alone"
    assert not re.search(r"url\(|@import", shown.styles)
    assert shown.policy.startswith("default-src 'none';")


def test_text_from_the_data_is_text(hostile, tmp_path):
    shown = page(hostile, tmp_path / "report.html")
    assert ATTACK in shown.text, "a reader sees it as it is"
    assert "49" not in re.findall(r"\{\{.*?\}\}|\b49\b", shown.text)
    assert not [name for _, name, _ in shown.attributes if name.startswith("on")]
    assert not [tag for tag, _, _ in shown.attributes if tag == "img"]
    assert shown.open == []


def test_only_the_pages_own_two_scripts_may_run(hostile, tmp_path):
    shown = page(hostile, tmp_path / "report.html")
    running = [text for attributes, text in shown.scripts if attributes.get("type") != "application/json"]
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in running]
    assert len(running) == 2
    assert re.search(r"script-src ([^;]*);", shown.policy)[1].split() == hashes
    assert len(shown.scripts) == 3


def test_labels_of_charts_hold_no_markup(hostile, tmp_path):
    shown = page(hostile, tmp_path / "report.html")
    (raw,) = [text for attributes, text in shown.scripts if attributes.get("id") == "charts"]
    assert "<" not in raw
    labels = [
        label
        for chart in json.loads(raw)
        for trace in chart["data"]
        for label in [*trace.get("text", []), *trace.get("x", []), *trace.get("y", [])]
    ]
    assert not [label for label in labels if isinstance(label, str) and "<" in label]
    assert any("&lt;script" in label for label in labels if isinstance(label, str))


def test_an_empty_store_has_a_report_that_says_so(tmp_path):
    shown = page(Store(tmp_path / "store"), tmp_path / "report.html")
    assert shown.text.count("Not run yet") == 7
    assert not (tmp_path / "store").exists()


def test_a_store_of_which_only_the_funnel_ran(tmp_path):
    store = Store(tmp_path / "store")
    store.commit(funnel_parts(store))
    shown = page(store, tmp_path / "report.html")
    assert shown.text.count("Not run yet") == 6
    assert "buy me a lamp please" in shown.text, "a dropped row for a reason"


def test_the_default_place_is_beside_the_store_and_the_file_is_replaced(tmp_path):
    store = Store(tmp_path / "run" / "store")
    first = write_report(store)
    assert first == tmp_path / "run" / "report.html"
    store.commit(funnel_parts(store))
    assert "1 in 3 kept" in write_report(store).read_text(encoding="utf-8")
    assert [path.name for path in first.parent.iterdir() if path.is_file()] == ["report.html"]


@pytest.mark.parametrize(
    "arguments", ['{"q": "\\ud83d"}', '{"q": ' + "[" * 5000 + "]" * 5000 + "}", '{"q": ' + "[" * 900 + "]" * 900 + "}"]
)
def test_no_call_however_odd_takes_the_report_down(tmp_path, arguments):
    store = Store(tmp_path / "store")
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": arguments}}
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    row = {"trajectory_id": "t", "accepted": True, "complexity": 1.0, "messages": json.dumps(messages)}
    store.commit([write(store, "trajectories", row)])
    assert "search" in write_report(store).read_text(encoding="utf-8")


def test_a_chat_shows_each_call_with_its_own_result():
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": f"f{n}", "arguments": f'{{"n": {n}}}'}} for n in range(3)]
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": '{"error": "no"}'},
        {"role": "tool", "tool_call_id": "c0", "content": '[{"a": 1}, {"a": 2}]'},
    ]
    shown = chat(messages)
    assert [message["role"] for message in shown] == ["user", "assistant"]
    assert [(call["name"], call["summary"], call["failed"]) for call in shown[1]["calls"]] == [
        ("f0", "n: 0", False),
        ("f1", "n: 1", True),
        ("f2", "n: 2", True),
    ]
    assert shown[1]["calls"][2]["result"] == "no result"


def test_a_call_id_that_is_used_again_has_its_own_result_each_time():
    call = {"id": "c0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = []
    for result in ("1", None, '{"error": "no"}'):
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages += [{"role": "tool", "tool_call_id": "c0", "content": result}] if result else []
    assert [message["calls"][0]["result_summary"] for message in chat(messages)] == ["1", "no result", "error: no"]


def test_clusters_say_whether_they_can_be_executed(tmp_path):
    """One executable cluster of a domain stands before better ranked ones of no world."""
    store = Store(tmp_path / "store")
    edge = json.dumps([{"source": "s.a", "target": "s.b", "score": 0.5, "entity": "order"}])
    rows = [
        {"cluster_id": f"c{rank}", "domain": "d", "world": world, "tool_ids": ["s.a", "s.b", "s.c"], "edges": edge, "rank": rank}
        for rank, world in enumerate([None, "retail", None])
    ]
    store.commit([write(store, "clusters", *rows)])

    shown = page(store, tmp_path / "report.html")
    (drawn,) = [json.loads(text) for attributes, text in shown.scripts if attributes.get("id") == "charts"]
    titles = [note["text"] for chart in drawn for note in chart["layout"].get("annotations", ()) if "<b>d</b>" in note["text"]]

    assert ["executable in retail" in title for title in titles] == [True, False, False]
    assert "2 of 3 are of tools that no world executes" in shown.text
