"""How well a query finds the tool and the cluster that could serve it, and the thresholds that `ReachConfig` ships with.

tools     BFCL's questions of one turn: is the function that answers one the nearest of its file's? The cosine above which this holds for
          four of five is calibrated on every other question; the share at `near` is measured on the other half. That below which one
          question in a hundred lies (`reach_far`) is calibrated in the same way; `far` is lower for what `log` shows.
          Missing functions: the answering function is removed (similar ones remain, some of which could serve), or the question is one that
          no offered function answers. Control: the functions' texts shuffled.
clusters  BFCL's conversations: how many of the tools that the first turn needs are in the cluster chosen; against the best cluster that
          holds the nearest tool, and one at random
log       rows of a generated log whose world is known, by language: whether the nearest tool is of that world, and how many are below
          `far`, where they would be called missing if no parser read them; how many rows of junk are
crowd     the shares of BFCL's questions, and of those that nothing offered answers, to which some tool of a public MCP catalogue is near:
          the effect of a large catalogue on a threshold (these tools have no labels of whether they could serve)
cost      CPU time to hold a row against 50,000 tools
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Figures, Section, fail, run_sections
from benchmarks.worlds_sections.business_clusters import bfcl_tools
from filters.grounding.tool_reach import Reach, ReachConfig, nearest, nearest_clusters, tool_texts
from filters.normalised_text import languages, normalise_text
from filters.steps.selection.semantic import calibrate
from storage.records import CODE_TOOL, Tool
from synth.clusters.business_clusters import cluster_tools
from synth.clusters.catalog import read_catalogue
from synth.engines.encoder import DIMENSIONS, Vectors, encode
from synth.haystack.generate import HaystackConfig, generate
from synth.worlds import WITH_LEXICON, WORLDS, bfcl_files

RIGHT, LOST = 0.8, 0.01
LOG_KEYS = tuple(f"log_{key}_{language}" for key in ("world", "world_missing", "junk_missing") for language in ("en", "zh"))
DRAWS = 5
LOG_ROWS = 10_000
COST_ROWS, COST_TOOLS = 20_000, 50_000
_CALL = re.compile(r"^(\w+)\(")


@dataclass(frozen=True)
class Question:
    """A question of one turn. right: names of the functions that answer it, none where no function offered does."""

    file: str
    text: str
    right: frozenset[str]
    offered: tuple[Tool, ...]


def main() -> int:
    tools = ("reach_top1", "reach_top3", "reach_top1_shuffled", "reach_near", "reach_named", "reach_precision", "reach_far")
    below = ("reach_missing_answerable", "reach_missing_taken_out", "reach_missing_irrelevant", "reach_not_near_taken_out")
    sections = [
        Section("tools", (*tools, *below, "reach_not_near_irrelevant"), lambda _: measure_tools(), minutes=3),
        Section("clusters", ("cluster_cover", "cluster_cover_first", "cluster_cover_random"), lambda _: measure_clusters(), minutes=1),
        Section("log", LOG_KEYS, lambda _: measure_log(), minutes=1),
        Section("crowd", ("crowd_near", "crowd_near_irrelevant"), lambda _: measure_crowd(), minutes=3),
        Section("cost", ("reach_us_per_row",), lambda _: measure_cost(), minutes=2),
    ]
    return run_sections("reach", sections)


def questions() -> list[Question]:
    """BFCL's questions of one turn that a function answers, or that are said to have none."""
    answers = {case["id"]: case["ground_truth"] for path in bfcl_files.files(bfcl_files.ANSWERS) for case in bfcl_files.cases(path)}
    found = []
    for path in bfcl_files.files(bfcl_files.QUESTIONS):
        for case in bfcl_files.cases(path):
            said = [text for turn in bfcl_files.user_turns(case) for text in turn]
            calls = answers.get(case["id"])
            has_calls = bool(calls) and all(isinstance(call, dict) for call in calls)
            if len(said) == 1 and case.get("function") and (has_calls or "irrelevance" in path.stem):
                right = frozenset(name for call in calls or () for name in call)
                found.append(Question(path.stem, said[0], right, tuple(_tool(row, path.stem) for row in case["function"])))
    return found


def _tool(row: dict[str, Any], server: str) -> Tool:
    return Tool(name=row["name"], description=row["description"], parameters=row["parameters"], server=server, domain=server)


def measure_tools() -> Figures:
    near, right_at, taken_out, shuffled = [], [], [], []
    for group in _files(answerable=True):
        pool = list({(tool.name, tool.description): tool for one in group for tool in one.offered}.values())
        names, vectors = np.array([tool.name for tool in pool]), encode(tool_texts(pool))
        asked = encode([one.text for one in group])
        cosine = asked @ vectors.T
        is_right = np.array([np.isin(names, sorted(one.right)) for one in group])
        near.append(cosine.max(axis=1))
        right_at.append(_first_right(cosine, is_right))
        taken_out.append(np.where(is_right, -1, cosine).max(axis=1))
        shuffled += [
            _first_right(asked @ vectors[np.random.default_rng(seed).permutation(len(pool))].T, is_right) == 0 for seed in range(DRAWS)
        ]
    best, place, without = np.concatenate(near), np.concatenate(right_at), np.concatenate(taken_out)
    irrelevant = np.concatenate([_nearest_offered(group) for group in _files(answerable=False)])
    is_odd, config = np.arange(len(best)) % 2 == 1, ReachConfig()
    named = is_odd & (best >= config.near)
    print(f"    {len(best)} questions that a function answers, {len(irrelevant)} that none does")
    return {
        "reach_top1": float((place == 0).mean()),
        "reach_top3": float((place < 3).mean()),
        "reach_top1_shuffled": float(np.concatenate(shuffled).mean()),
        "reach_near": calibrate(best[~is_odd].astype(np.float64), place[~is_odd] == 0, RIGHT),
        "reach_named": float(named.sum() / is_odd.sum()),
        "reach_precision": float((place[named] == 0).mean()),
        "reach_far": float(np.quantile(best[~is_odd], LOST)),
        "reach_missing_answerable": float((best[is_odd] < config.far).mean()),
        "reach_missing_taken_out": float((without < config.far).mean()),
        "reach_missing_irrelevant": float((irrelevant < config.far).mean()),
        "reach_not_near_taken_out": float((without < config.near).mean()),
        "reach_not_near_irrelevant": float((irrelevant < config.near).mean()),
    }


def _files(*, answerable: bool) -> list[list[Question]]:
    files: dict[str, list[Question]] = defaultdict(list)
    for one in questions():
        if bool(one.right) == answerable:
            files[one.file].append(one)
    return list(files.values())


def _first_right(cosine: Vectors, is_right: np.ndarray[Any, np.dtype[np.bool_]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The place of the first right function among all, nearest first [questions]."""
    order = np.argsort(-cosine, axis=1, kind="stable")
    return np.take_along_axis(is_right, order, axis=1).argmax(axis=1)


def _nearest_offered(group: Sequence[Question]) -> Vectors:
    """The highest cosine of each question to a function that was offered with it."""
    texts = [tool_texts(one.offered) for one in group]
    offered, asked = encode([text for own in texts for text in own]), encode([one.text for one in group])
    ends = np.cumsum([len(own) for own in texts])
    parts = np.split(offered, ends[:-1])
    return np.array([(own @ vector).max() for own, vector in zip(parts, asked, strict=True)], np.float32)


def measure_clusters() -> Figures:
    tools = bfcl_tools()
    reach = Reach(tuple(tools), tuple(cluster_tools(tools)), encode)
    known = {tool.name for tool in tools}
    name = "BFCL_v4_multi_turn_base.json"
    calls = {case["id"]: case["ground_truth"][0] for path in bfcl_files.files(f"possible_answer/{name}") for case in bfcl_files.cases(path)}
    said, needed = [], []
    for case in (case for path in bfcl_files.files(name) for case in bfcl_files.cases(path)):
        names = {match[1] for call in calls[case["id"]] if (match := _CALL.match(call))} & known
        if names:
            said.append(case["question"][0][-1]["content"])
            needed.append(names)
    vectors, rows = encode(said), np.arange(len(said))
    _, tool = nearest(vectors, rows, reach)
    chosen = nearest_clusters(vectors, rows, tool, reach)
    best_of = dict(reach.holders.sort("cluster", descending=True).iter_rows())
    first = np.array([best_of.get(one, -1) for one in tool.tolist()])
    by_chance = [np.random.default_rng(seed).integers(0, len(reach.clusters), len(said)) for seed in range(DRAWS)]

    def cover(clusters: np.ndarray[Any, np.dtype[np.int64]]) -> float:
        own = [reach.clusters[number].tool_names if number >= 0 else frozenset() for number in clusters.tolist()]
        return float(np.mean([len(names & held) / len(names) for names, held in zip(needed, own, strict=True)]))

    print(f"    {len(said)} first turns, {len(reach.clusters)} clusters of {len(tools)} tools")
    return {
        "cluster_cover": cover(chosen),
        "cluster_cover_first": cover(first),
        "cluster_cover_random": float(np.mean([cover(draw) for draw in by_chance])),
    }


def measure_log() -> Figures:
    with TemporaryDirectory() as folder:
        tables = generate(Path(folder), HaystackConfig(rows=LOG_ROWS, common_combinations=60, seed=5), 20)
        log = pl.concat([pl.read_parquet(path) for path in tables], how="horizontal").unique("text", keep="first", maintain_order=True)
    log = log.with_columns(norm=log.select(normalise_text(pl.col("text"))).to_series())
    log = log.with_columns(language=languages(log["norm"]))
    tools = [tool for world in WITH_LEXICON for tool in WORLDS[world].tools if tool.name != CODE_TOOL]
    cosine, tool = nearest(encode(log["norm"].to_list()), np.arange(log.height), Reach(tuple(tools), (), encode))
    told = log.with_columns(
        is_far=pl.Series(cosine < ReachConfig().far), is_right=pl.Series([tools[at].world for at in tool.tolist()]) == pl.col("world")
    )
    found = told.group_by("language", is_junk=pl.col("world").is_null()).agg(pl.col("is_right", "is_far").mean())
    shares = {(language, is_junk): (right, far) for language, is_junk, right, far in found.iter_rows()}
    figures: Figures = {}
    for language in ("en", "zh"):
        (right, missing), (_, junk) = shares[language, False], shares[language, True]
        figures |= {f"log_world_{language}": right, f"log_world_missing_{language}": missing, f"log_junk_missing_{language}": junk}
    return figures


def measure_crowd() -> Figures:
    path = Path(os.environ.get("HEADRACE_TEST_DATA", "")) / "mcp_tools_toucan.jsonl.gz"
    if not path.is_file():
        fail(f"no {path.name}: name the folder that holds it in HEADRACE_TEST_DATA")
    reach = Reach(read_catalogue(path).tools, (), encode)
    shares = {}
    for key, answerable in (("crowd_near", True), ("crowd_near_irrelevant", False)):
        vectors = encode([one.text for group in _files(answerable=answerable) for one in group])
        shares[key] = float((nearest(vectors, np.arange(len(vectors)), reach)[0] >= ReachConfig().near).mean())
    return shares


def measure_cost() -> Figures:
    """Of rows and tools whose vectors are drawn at random: what vectors say does not change what comparing them costs."""
    rng = np.random.default_rng(0)
    tools = tuple(Tool(name=f"tool_{at}", description="", parameters={}, server="s", domain="d") for at in range(COST_TOOLS))
    reach = Reach(tools, (), lambda texts: rng.normal(size=(len(texts), DIMENSIONS)).astype(np.float32))
    rows = rng.normal(size=(COST_ROWS, len(reach.vectors[0]))).astype(np.float32)
    since = time.process_time()
    nearest(rows, np.arange(COST_ROWS), reach)
    return {"reach_us_per_row": (time.process_time() - since) / COST_ROWS * 1e6}


if __name__ == "__main__":
    sys.exit(main())
