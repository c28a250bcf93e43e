"""Queries that no parser reads find the tool and the cluster that could serve them; the others say what is missing, and no row is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from filters.grounding.tool_reach import Reach, ReachConfig, load, nearest, nearest_clusters, step, tool_texts
from filters.lexicon_worlds import lexicon_worlds
from storage.records import JSON, Tool
from storage.store import Store
from synth.clusters.business_clusters import Cluster
from synth.clusters.cluster_store import save_clusters
from synth.engines.encoder import Vectors, encode
from synth.worlds import WITH_LEXICON, WORLDS

CONFIG = ReachConfig()
READ = lexicon_worlds()


def tool(name: str, description: str, *parameters: str, server: str = "clinic") -> Tool:
    schema: dict[str, JSON] = {"type": "object", "properties": {each: {"type": "string"} for each in parameters}, "required": [*parameters]}
    return Tool(name=name, description=description, parameters=schema, server=server, domain=server)


CLINIC = (
    tool("search_patients", "Find patients by their name; returns the patient id of each.", "name"),
    tool("get_patient", "Medical record of a patient.", "patient_id"),
    tool("book_appointment", "Book an appointment with a doctor for a patient; returns the appointment id.", "patient_id", "date"),
    tool("cancel_appointment", "Cancel an appointment of a patient.", "appointment_id"),
)
LONE = tool("chess_best_move", "The best next move in a game of chess.", "board", server="chess")


@pytest.fixture(scope="module")
def reach(tmp_path_factory: pytest.TempPathFactory) -> Reach:
    """Of a store whose last build holds the worlds, a clinic, and a tool that is in no cluster."""
    store = Store(tmp_path_factory.mktemp("reach") / "store")
    save_clusters(store, [tool for world in WITH_LEXICON for tool in WORLDS[world].tools])
    save_clusters(store, [*(tool for world in WITH_LEXICON for tool in WORLDS[world].tools), *CLINIC, LONE])
    return load(store, encode, READ)


def rows_of(ungrounded: list[str | None]) -> pl.DataFrame:
    return pl.DataFrame({"ungrounded": pl.Series(ungrounded, dtype=pl.String)}).with_row_index("row")


def vectors_of(reach: Reach, *tool_ids: str) -> Vectors:
    places = {tool.id: place for place, tool in enumerate(reach.tools)}
    return reach.vectors[[places[tool_id] for tool_id in tool_ids]]


@pytest.mark.parametrize(
    ("text", "tool_id", "is_in_cluster"),
    [
        ("please book me an appointment with a doctor for tomorrow", "clinic.book_appointment", True),
        ("请帮我取消预约", "clinic.cancel_appointment", True),
        ("what is the best next move in this chess game", "chess.chess_best_move", False),
    ],
)
def test_a_query_finds_the_tool_that_could_serve_it_and_a_cluster_that_holds_it(
    reach: Reach, text: str, tool_id: str, is_in_cluster: bool
) -> None:
    (found,) = step(rows_of(["unknown"]), encode([text]), reach, CONFIG).to_dicts()

    holders = {cluster.id for cluster in reach.clusters if tool_id in cluster.tool_ids}
    assert (found["tool_id"], found["ungrounded"], found["reason"]) == (tool_id, "unread", None)
    assert CONFIG.near <= found["nearness"] <= 1.001
    assert (found["cluster_id"] in holders) if is_in_cluster else (found["cluster_id"] is None and not holders)


def test_where_nothing_is_near_the_tool_is_missing_and_the_nearness_is_known(reach: Reach) -> None:
    (found,) = step(rows_of(["unknown"]), encode(["why do cats purr"]), reach, CONFIG).to_dicts()

    assert found["ungrounded"] == "missing_tool"
    assert (found["cluster_id"], found["tool_id"]) == (None, None)
    assert -1 <= found["nearness"] < CONFIG.far


@pytest.mark.parametrize(
    ("before", "far", "near_read", "near_other"),
    [
        (None, None, None, None),
        ("missing_information", "missing_information", "missing_information", "unread"),
        ("ambiguous", "ambiguous", "ambiguous", "unread"),
        ("unparsed", "unparsed", "unparsed", "unread"),
        ("unknown", "missing_tool", "unread", "unread"),
        ("not_actionable", "not_actionable", "unread", "unread"),
        ("missing_tool", "missing_tool", "unread", "unread"),
    ],
)
def test_what_ground_has_said_holds_for_the_worlds_that_it_reads(
    reach: Reach, before: str | None, far: str | None, near_read: str | None, near_other: str | None
) -> None:
    near = vectors_of(reach, WORLDS["retail"].tools[0].id, "clinic.get_patient")
    between = (near[:1] + 3 * _away(reach)) / np.sqrt(10)
    found = step(rows_of([before] * 4), np.concatenate([_away(reach), near, between]), reach, CONFIG)

    assert found["ungrounded"].to_list() == [far, near_read, near_other, before]
    if before is None:
        assert found.select("cluster_id", "tool_id", "nearness").null_count().row(0) == (4, 4, 4)
    else:
        assert CONFIG.far < found["nearness"][3] < CONFIG.near


def _away(reach: Reach) -> Vectors:
    """A unit vector at a right angle to every tool [1, d]."""
    return np.linalg.svd(reach.vectors)[2][-1:].astype(np.float32)


def test_thresholds_out_of_order_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"far 0\.5 is more than near 0\.4"):
        ReachConfig(near=0.4, far=0.5)


def test_rows_keep_their_order_and_what_they_hold(reach: Reach) -> None:
    rows = rows_of(["unknown", None, "unknown"]).with_columns(norm=pl.Series(["a", "b", "c"]))
    found = step(rows, vectors_of(reach, "clinic.get_patient", "clinic.get_patient", "chess.chess_best_move"), reach, CONFIG)

    assert found.select("row", "norm").equals(rows.select("row", "norm"))
    assert found["tool_id"].to_list() == ["clinic.get_patient", None, "chess.chess_best_move"]
    near = (reach.vectors @ vectors_of(reach, "clinic.get_patient").T >= CONFIG.near).sum()
    assert found["tools_near"].to_list()[:2] == [min(near, 4), None] and near >= 1
    assert found.schema == {
        "row": pl.UInt32,
        "ungrounded": pl.String,
        "norm": pl.String,
        "cluster_id": pl.String,
        "tool_id": pl.String,
        "nearness": pl.Float64,
        "tools_near": pl.Int64,
        "reason": pl.String,
    }
    assert step(rows[:0], reach.vectors[:0], reach, CONFIG).schema == found.schema


def test_a_store_without_clusters_leaves_all_rows_as_they_are(tmp_path: Path) -> None:
    empty = load(Store(tmp_path / "store"), encode, READ)
    found = step(rows_of(["unknown", "not_actionable", None]), encode(["a", "b", "c"]), empty, CONFIG)

    assert (empty.tools, empty.clusters) == ((), ())
    assert found["ungrounded"].to_list() == ["unknown", "not_actionable", None]
    assert found.select("cluster_id", "tool_id", "nearness").null_count().row(0) == (3, 3, 3)


def test_the_hash_is_of_what_decides_and_does_not_wait_for_vectors(reach: Reach) -> None:
    same = Reach(reach.tools, reach.clusters, encode)
    reworded = (reach.tools[0].model_copy(update={"description": "Something else."}), *reach.tools[1:])

    assert same.content_hash == reach.content_hash
    assert len({each.content_hash for each in (reach, Reach(reworded, reach.clusters, encode), Reach(reach.tools, (), encode))}) == 3
    assert "vectors" not in vars(same)


def test_of_clusters_that_share_a_tool_the_one_that_is_nearest_on_average_is_meant() -> None:
    """Given two clusters with the tool that both queries name, then each query's other words decide, not the rank."""
    shared = tool("transfer_money", "Transfer money to somebody.", "amount", server="pay")
    garden = tuple(tool(f"water_{plant}", f"Water the {plant}.", server="garden") for plant in ("roses", "lawn"))
    bank = tuple(tool(f"{verb}_account", f"{verb} a bank account", server="bank") for verb in ("open", "close"))
    clusters = tuple(
        Cluster(f"cluster-{rank}", "x", None, (shared.id, *(one.id for one in others)), (), rank)
        for rank, others in enumerate((garden, bank))
    )
    reach = Reach((shared, *garden, *bank), clusters, encode)
    vectors = encode(["transfer money to the man who waters my roses", "transfer money from my bank account"])

    assert nearest_clusters(vectors, np.arange(2), np.array([0, 0]), reach).tolist() == [0, 1]


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 40))
def test_the_nearest_tool_is_that_of_all_comparisons(seed: int, count: int, tool_count: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, own = (made / np.linalg.norm(made, axis=1, keepdims=True) for made in (_drawn(rng, count), _drawn(rng, tool_count)))
    reach = Reach(tuple(tool(f"t{number}", "") for number in range(tool_count)), (), lambda texts: own[: len(texts)])
    cosine, place = nearest(vectors, np.arange(count), reach)

    every = vectors @ reach.vectors.T
    np.testing.assert_allclose(cosine, every.max(axis=1), atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(every, place[:, None], axis=1)[:, 0], every.max(axis=1), atol=1e-5)


def _drawn(rng: np.random.Generator, count: int) -> Vectors:
    return rng.normal(size=(count, 8)).astype(np.float32)


def test_of_equal_texts_the_tool_of_a_cluster_is_found(tmp_path: Path) -> None:
    """Given a server that copies a tool of the clinic and feeds nothing, then the clinic's is the one that is found."""
    store = Store(tmp_path / "store")
    save_clusters(store, [*CLINIC, CLINIC[1].model_copy(update={"server": "a", "domain": "a"})])
    reach = load(store, encode, READ)
    found = step(rows_of(["unknown"]), encode(tool_texts([CLINIC[1]])), reach, CONFIG)

    assert found["tool_id"].to_list() == ["clinic.get_patient"]
    assert found["cluster_id"].null_count() == 0


def test_shuffled_texts_find_nothing(reach: Reach) -> None:
    """Control: with the texts of tools exchanged among them, no query finds its tool."""
    asked = {
        "clinic.book_appointment": "I need to see a doctor, book an appointment for me",
        "clinic.search_patients": "which patients are called Smith",
        "clinic.cancel_appointment": "cancel my appointment please",
        "chess.chess_best_move": "help me win this game of chess",
    }
    ids = np.array([tool.id for tool in reach.tools])
    _, place = nearest(encode(list(asked.values())), np.arange(len(asked)), reach)
    shuffled = np.random.default_rng(0).permutation(ids)

    assert (ids[place] == np.array(list(asked))).mean() >= 0.75
    assert (shuffled[place] == np.array(list(asked))).mean() <= 0.25
