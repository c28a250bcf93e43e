"""A configuration that names no worlds takes those of its store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.config import Config, read, recall, remember, settle_curation
from storage.errors import BadInput
from storage.record_rows import tasks_frame
from storage.records import Language
from storage.store import Store, part_id
from synth.blueprints.single_goal import draw_drills
from synth.clusters.business_clusters import ClusterConfig, cluster_tools
from synth.tasks.split import STANDARD
from synth.worlds import WORLDS
from synth.worlds.stored_worlds import worlds_frame
from tests.storage.conftest import build_sample

LIBRARY = Path("synth/worlds/library")


def make_config(store: Path, **sections: Any) -> Config:
    return Config.model_validate({"store": store, **sections})


def add_tasks(store: Path, *worlds: str, language: Language = "en") -> None:
    """Tasks as a synthesis in these worlds would write them."""
    for name in worlds:
        clusters = cluster_tools(WORLDS[name].tools, ClusterConfig())
        tasks = [drill.task.model_copy(update={"language": language}) for drill in draw_drills(WORLDS[name], 3, clusters, STANDARD, seed=0)]
        part = part_id("tasks", [name], {}, 1)
        Store(store).commit([Store(store).write("tasks", part, tasks_frame(tasks))])


@pytest.fixture
def own_world(tmp_path: Path) -> str:
    """A world of the user's own, from a file that is gone afterwards; the store at `tmp_path / "s"` keeps its spec."""
    spec = tmp_path / "my_bank.yaml"
    spec.write_text((LIBRARY / "banking.yaml").read_text().replace("domain: banking", "domain: my_bank", 1))
    name = str(make_config(tmp_path / "s", train={"worlds": [str(spec)]}).train.worlds[0])
    spec.unlink()
    store = Store(tmp_path / "s")
    store.commit([store.write("worlds", part_id("worlds", [name], {}, 1), worlds_frame([name]))])
    return name


def test_a_training_that_names_no_worlds_uses_those_of_the_last_synthesis(tmp_path: Path) -> None:
    remember(make_config(tmp_path / "s", synthesize={"worlds": ["banking", "gen-1..3"]}), "synthesize")
    add_tasks(tmp_path / "s", "banking")
    assert recall(make_config(tmp_path / "s")).train.worlds == ("banking",)


def test_worlds_that_a_file_names_win_over_those_of_the_store(tmp_path: Path) -> None:
    remember(make_config(tmp_path / "s", synthesize={"worlds": ["banking"]}), "synthesize")
    add_tasks(tmp_path / "s", "banking")
    named = recall(make_config(tmp_path / "s", train={"worlds": ["retail"]}, synthesize={"worlds": ["hotel"]}))
    assert (named.train.worlds, named.synthesize.worlds) == (("retail",), ("hotel",))


def test_a_second_synthesis_has_the_worlds_and_drills_of_the_first(tmp_path: Path) -> None:
    first = make_config(tmp_path / "s", synthesize={"worlds": ["banking"], "drills": {"banking": 7}, "accepted": 10})
    remember(first, "synthesize")
    second = recall(make_config(tmp_path / "s", synthesize={"accepted": 20})).synthesize
    assert (second.worlds, dict(second.drills), second.accepted) == (("banking",), {"banking": 7}, 20)


def test_worlds_of_a_training_stay_and_later_synthesised_ones_come_beside_them(tmp_path: Path) -> None:
    add_tasks(tmp_path / "s", "banking", "hotel", "retail")
    remember(make_config(tmp_path / "s", synthesize={"worlds": ["banking", "retail"]}, train={"worlds": ["retail"]}), "synthesize", "train")
    assert recall(make_config(tmp_path / "s")).train.worlds == ("retail",)
    remember(make_config(tmp_path / "s", synthesize={"worlds": ["hotel"]}), "synthesize")
    assert recall(make_config(tmp_path / "s")).train.worlds == ("retail", "hotel")


def test_the_sample_stays_the_sample(tmp_path: Path) -> None:
    sample = make_config(tmp_path / "s")
    assert recall(sample).train.worlds == sample.train.worlds
    remember(recall(sample), "synthesize")
    add_tasks(tmp_path / "s", "banking", "retail")
    assert recall(sample).train.worlds == sample.train.worlds


def test_a_run_that_names_only_worlds_of_synthesis_trains_in_them(tmp_path: Path) -> None:
    assert recall(make_config(tmp_path / "s", synthesize={"worlds": ["banking"]})).train.worlds == ("banking",)


def test_a_curated_store_trains_in_the_worlds_of_its_tasks(tmp_path: Path) -> None:
    add_tasks(tmp_path / "s", "banking")
    assert recall(make_config(tmp_path / "s")).train.worlds == ("banking",)


@pytest.mark.parametrize(("language", "words"), [("zh", "zh"), ("en", "en")])
def test_a_store_with_tasks_in_one_language_trains_in_it(tmp_path: Path, language: Language, words: str) -> None:
    add_tasks(tmp_path / "s", "retail", language=language)
    assert recall(make_config(tmp_path / "s")).train.language == words


def test_without_a_file_a_measurement_has_the_settings_of_the_last_training(tmp_path: Path) -> None:
    remember(make_config(tmp_path / "s", train={"worlds": ["retail"], "eval_tasks": 8, "stages": [{"name": "rl", "skip": True}]}), "train")
    bare = recall(make_config(tmp_path / "s"), is_bare=True).train
    assert (bare.worlds, bare.eval_tasks, [stage.name for stage in bare.cascade]) == (("retail",), 8, ["sft1", "sft2"])
    assert recall(make_config(tmp_path / "s", train={"seed": 1})).train.eval_tasks == 240


def test_a_world_of_the_store_is_named_by_its_domain_without_its_file(tmp_path: Path, own_world: str) -> None:
    WORLDS.forget(own_world)
    file = tmp_path / "c.yaml"
    file.write_text(f"store: {tmp_path / 's'}\ntrain: {{worlds: [my_bank]}}\n")
    assert read(file).train.worlds == (own_world,)


def test_drills_outside_the_worlds_of_the_store_are_refused(tmp_path: Path) -> None:
    remember(make_config(tmp_path / "s", synthesize={"worlds": ["banking"]}), "synthesize")
    with pytest.raises(BadInput, match=r"in banking, but synthesize\.drills: 'retail' is not among worlds"):
        recall(make_config(tmp_path / "s", synthesize={"drills": {"retail": 5}}))


def test_requests_in_files_that_are_named_are_read_in_the_worlds_of_the_store_s_synthesis(tmp_path: Path) -> None:
    config = remember(make_config(tmp_path, synthesize={"worlds": ["hotel", "clinic"]}), "synthesize")
    assert settle_curation(config, ["log.csv"]).curate.worlds == ("hotel", "clinic")
    assert settle_curation(config, []).curate.worlds is None
    chosen = config.model_copy(update={"curate": config.curate.model_copy(update={"worlds": ("school",)})})
    assert settle_curation(chosen, ["log.csv"]).curate.worlds == ("school",)
    sample = remember(make_config(tmp_path / "sample"), "synthesize")
    assert settle_curation(sample, ["log.csv"]).curate.worlds is None


def test_queries_without_a_world_are_kept_of_files_that_are_named_until_there_are_conversations(tmp_path: Path) -> None:
    fresh, settled = make_config(tmp_path / "fresh"), make_config(build_sample(tmp_path / "sample").store.root)
    assert [settle_curation(config, files).curate.ungrounded for config in (fresh, settled) for files in (["log.csv"], [])] == [
        *(True, False, False, False)
    ]
    for word in (True, False):
        named = make_config(tmp_path / "fresh", curate={"ungrounded": word})
        assert settle_curation(named, ["log.csv"]).curate.ungrounded is word
