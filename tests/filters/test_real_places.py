"""Requests to the city that name real places: the parser does not know them, the reader reads them, and they become tasks with them."""

from __future__ import annotations

import json
from pathlib import Path

from filters.funnel import FunnelConfig, curate
from filters.grounding.ground_model import GroundConfig
from filters.steps.selection.coverage import CoverageConfig
from storage.records import Task
from storage.store import Store
from synth.tasks.solver import expert_messages
from synth.tasks.verify import verify
from synth.worlds import WORLDS

ENGLISH = ("Union Station", "Pier 39", "Coit Tower", "Ocean Beach", "Ferry Building", "Lombard Street", "Union Square", "Mission Dolores")
CHINESE = ("天安门", "北京西站", "南锣鼓巷", "清华大学", "颐和园", "雍和宫", "景山公园", "故宫博物院")
ASKED = ("what's the weather at {0} now", "what is the traffic like from {0} to {1}", "find me a coffee shop near {0}")
ASKED_ZH = ("从{0}到{1}怎么走", "{0}附近有火锅店吗")


def test_a_log_of_real_places_becomes_tasks_that_verify(tmp_path: Path) -> None:
    pairs = [(names[n], names[(n + 3) % 8]) for names in (ENGLISH, CHINESE) for n in range(8)]
    log = [text.format(*pair) for pair in pairs for text in (ASKED if pair[0].isascii() else ASKED_ZH)]
    foreign = [f"cancel my gym membership number {n} please" for n in range(20)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in (*log, *foreign)), encoding="utf-8")
    store = Store(tmp_path / "store")
    ground = GroundConfig(min_precision=0.7)
    curate(store, [path], FunnelConfig(worlds=("city",), ungrounded=False, ground=ground, coverage=CoverageConfig(keep=40)))
    tasks = [Task.model_validate_json(spec) for spec in store.query("SELECT spec FROM tasks")["spec"]]
    assert len(tasks) >= 12 and {task.language for task in tasks} == {"en", "zh"}
    for task in tasks:
        request = str(task.messages[-1].content)
        names = [str(row["name"]) for rows in task.given.values() for row in rows]
        assert names and all(name in request for name in names)
        world = WORLDS[task.world]
        assert verify(world, task, expert_messages(world, task)).success
    assert not any("gym" in str(task.messages[-1].content) for task in tasks)
