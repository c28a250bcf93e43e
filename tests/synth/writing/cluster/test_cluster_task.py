"""A world for a cluster, written by a scripted model: other tools go back to it, and a tool that nothing leads to is no good."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import BadInput
from synth.writing.cluster.cluster_task import ClusterTask
from synth.writing.cluster.skeleton_text import draft_cluster
from synth.writing.spec_folder import SpecFolder
from synth.writing.spec_gate import SpecGateConfig
from synth.writing.spec_writer import SpecWriterConfig, write_specs
from tests.synth.scripted_writer import WORKSHOP, ScriptedWriter, fenced
from tests.synth.writing.cluster.clusters_of_pets import PETS, cluster_of

TASK = ClusterTask(cluster_of(), PETS)
GOOD = draft_cluster(TASK.cluster, PETS)
OTHER = GOOD.replace("petId: pet,", "petKey: pet,")
"""A parameter is called otherwise."""
ONCE = SpecWriterConfig(attempts_per_spec=1)


def test_the_prompt_has_the_language_the_tools_and_the_skeleton() -> None:
    system, user = TASK.opening("STARTER")
    assert "STARTER" in str(system.content) and "signatures" in str(system.content)
    assert "Its tools must differ from every world" not in str(system.content)
    assert "pet-shop-7.getPet: It does getPet." in str(user.content) and '"petId"' in str(user.content)
    assert GOOD.strip() in str(user.content)


def test_other_tools_are_sent_back_and_the_mended_world_is_kept(tmp_path: Path) -> None:
    model = ScriptedWriter([fenced(OTHER), fenced(GOOD)])
    ended = write_specs(model, tmp_path, 1, cluster=TASK, config=ONCE)
    (attempt,) = ended.folder.attempts
    assert (attempt.outcome, attempt.tries, attempt.order.cluster) == ("kept", 2, "cluster-0123456789abcdef")
    told = str(model.requests[1].messages[-1].content)
    assert "its tools are not those of the catalogue" in told
    assert "pet-shop-7.getPet: takes petId too" in told and "pet-shop-7.getPet: takes no petKey" in told
    text = (tmp_path / attempt.file).read_text()
    assert "# about: the tools of cluster-0123456789abcdef" in text and text.endswith(GOOD)
    assert {"cluster_writer", "spec_writer", "spec_writer_repair"} == set(attempt.prompts)
    assert not model.requests[2:] and not write_specs(model, tmp_path, 1, cluster=TASK, config=ONCE).stopped, "nothing is asked again"


def test_the_gate_names_the_first_stage_that_fails() -> None:
    config = SpecGateConfig()
    assert TASK.check("I would rather not.", config).outcome == "no_yaml"
    assert TASK.check(fenced(GOOD.replace("noun: pet ", "nuon: pet ")), config).outcome == "does_not_compile"
    assert TASK.check(fenced(WORKSHOP), config).outcome == "other_tools"
    assert TASK.check(fenced(GOOD), config).outcome == "kept"


def test_a_tool_that_no_request_leads_to_is_told() -> None:
    """Given a list of vets that finds none, when it is looked at, then the answer goes back although all of its intents can be solved."""
    unused = GOOD.replace("finds: {vet: {}}", "finds: {vet: {name: \"'Nobody'\"}}")
    assert unused != GOOD
    result = TASK.check(fenced(unused), SpecGateConfig())
    assert result.outcome in ("not_admitted", "does_not_compile")
    assert any("list_vets" in problem for problem in result.problems)


def test_a_folder_is_of_one_cluster(tmp_path: Path) -> None:
    write_specs(ScriptedWriter([fenced(GOOD)]), tmp_path, 1, cluster=TASK, config=ONCE)
    with pytest.raises(BadInput, match="for another cluster; give another folder"):
        write_specs(ScriptedWriter([fenced(WORKSHOP)]), tmp_path, 2)
    assert len(SpecFolder(tmp_path).attempts) == 1
