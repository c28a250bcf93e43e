"""Chinese requests to worlds without a lexicon become tasks; those to other businesses do not."""

from __future__ import annotations

import json
import random

import pytest

from filters.funnel import FunnelConfig, curate
from filters.steps.selection.coverage import CoverageConfig
from storage.store import Store

HOTEL = {
    "cancel_reservation": ("行程有变，麻烦把订单b0{n}取消掉", "b0{n}这个订单我不要了，帮我取消", "取消订单b0{n}吧，谢谢"),
    "check_in": ("我们到了，帮我办一下订单b0{n}的入住", "订单b0{n}办理入住"),
    "ask_room": ("r0{n}这间客房的房型是什么", "客房r0{n}每晚房价多少"),
}
FOREIGN = (
    "我的快递{n}号怎么还没到",
    "帮我写一篇{n}字的作文",
    "信用卡尾号{n}的账单什么时候还",
    "明天{n}路公交几点发车",
    "把我的健身卡{n}取消了",
    "给猫绝育要花{n}块钱吗",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[str]]:
    rng, rows = random.Random(2), list[tuple[str, str]]()
    for n in range(10, 49):
        rows += [(rng.choice(texts).format(n=n), intent) for intent, texts in HOTEL.items()]
        rows += [(text.format(n=n), "") for text in rng.sample(FOREIGN, 4)]
    rng.shuffle(rows)
    folder = tmp_path_factory.mktemp("chinese")
    (folder / "log.jsonl").write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text, _ in rows), encoding="utf-8")
    store = Store(folder / "store")
    curate(store, [folder / "log.jsonl"], FunnelConfig(worlds=("hotel",), ungrounded=False, coverage=CoverageConfig(keep=60)))
    return store, [intent for _, intent in rows]


def test_requests_become_tasks_and_foreign_ones_do_not(store: tuple[Store, list[str]]) -> None:
    frames = store[0].query(
        "SELECT q.row, f.intent, f.status FROM frames f JOIN queries q USING (query_id, run) WHERE f.frame_id IS NOT NULL"
    )
    wanted = sum(bool(intent) for intent in store[1])
    right = [store[1][row] == intent for row, intent in frames.select("row", "intent").iter_rows()]
    assert sum(right) >= 0.4 * wanted and sum(right) >= 0.95 * len(right)
    assert frames.filter(status="admitted").height >= 20


def test_tasks_are_in_the_language_of_their_requests(store: tuple[Store, list[str]]) -> None:
    assert store[0].query("SELECT DISTINCT language FROM tasks")["language"].to_list() == ["zh"]
