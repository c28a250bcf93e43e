"""`--focus failures`: the focus is printed before a run starts, and a store without a probe is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows import validation
from flows.cli.main import app
from flows.config import Config
from flows.summaries.targeting_tables import curation_focus_tables, synthesis_focus_tables
from storage.store import Store
from synth.run.config import SynthesisConfig
from synth.run.evolution.controller import EvolutionConfig
from synth.run.synthesize import synthesize
from synth.worlds import WORLDS
from tests.synth.probed import WORLDS_USED, probed_store, promote

FAILING, MASTERED = WORLDS_USED
SMALL = SynthesisConfig(
    worlds=WORLDS_USED, accepted=5, calibration=24, subsample=24, drills={}, code_share=0, evolution=EvolutionConfig(focus_weight=1.0)
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with a policy that wavers in one world and masters the other, and with synthesised trajectories."""
    store = probed_store(tmp_path_factory.mktemp("probed") / "store", {FAILING: 0.4, MASTERED: 1.0})
    synthesize(store, SMALL.model_copy(update={"evolution": EvolutionConfig()}))
    return store


def test_the_tables_show_shares_before_and_now_with_the_reasons(store: Store) -> None:
    domains, modes = synthesis_focus_tables(Config(store=store.root, synthesize=SMALL))
    failing, mastered = domains.rows

    assert (failing["domain"], mastered["domain"]) == WORLDS_USED
    assert float(failing["urgency"]) > 0.4 and mastered["urgency"] == "0.00"
    assert (mastered["success"], mastered["never, sometimes, always"]) == ("1.000", f"0, 0, {mastered['tasks']}")
    assert failing["share before"] == mastered["share before"] == "0.5000"
    assert float(failing["share now"]) > 0.55
    for table in (domains, modes):
        for column in ("share before", "share now"):
            assert sum(float(row[column]) for row in table.rows) == pytest.approx(1, abs=0.002)
    assert {row["modes and complexity"].partition(";")[0] for row in modes.rows} >= {"call, then final answer", "no call"}


def test_without_a_synthesis_run_only_domains_are_shown(tmp_path: Path) -> None:
    store = probed_store(tmp_path / "store", {FAILING: 0.4})
    (domains,) = synthesis_focus_tables(Config(store=store.root, synthesize=SMALL.model_copy(update={"worlds": (*WORLDS_USED, "hotel")})))

    assert [row["domain"] for row in domains.rows] == [FAILING, "2 others"]


def test_the_domains_of_a_catalogue_are_those_of_the_worlds_that_execute_its_tools(store: Store, tmp_path: Path) -> None:
    rows = [tool.model_dump(include={"name", "description", "parameters", "server", "world"}) for tool in WORLDS[FAILING].tools]
    (tmp_path / "tools.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    synthesis = SMALL.model_copy(update={"worlds": (), "tools": tmp_path / "tools.jsonl"})
    domains, _ = synthesis_focus_tables(Config(store=store.root, synthesize=synthesis))

    assert [(row["domain"], row["share now"]) for row in domains.rows] == [(FAILING, "1.0000")]


def test_quotas_of_intents_are_listed_most_urgent_first(store: Store) -> None:
    config = Config(store=store.root)
    focused = config.curate.model_copy(update={"coverage": config.curate.coverage.model_copy(update={"focus": 0.5})})
    (table,) = curation_focus_tables(config.model_copy(update={"curate": focused}))
    quotas = [float(row["quota"].removeprefix("x ")) for row in table.rows[:-1]]

    assert quotas == sorted(quotas, reverse=True) and 1.05 < quotas[0] <= 1.5
    assert table.rows[0]["intent"].startswith(FAILING) and table.rows[-1]["intent"].endswith("others")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["synthesize", "curate"])
def test_a_dry_run_shows_the_focus_and_writes_nothing(store: Store, command: str) -> None:
    before = sorted(store.root.rglob("*"))
    result = CliRunner().invoke(app, [command, "--focus", "failures", "--dry-run", "--store", str(store.root)])

    assert result.exit_code == 0, result.output
    assert "by failures of policy-1" in result.stdout and "nothing was done" in result.stdout
    assert sorted(store.root.rglob("*")) == before


@pytest.mark.parametrize("command", ["synthesize", "curate"])
def test_a_store_without_a_policy_or_its_probe_is_refused_in_one_line(tmp_path: Path, command: str) -> None:
    call = [command, "--focus", "failures", "--store", str(tmp_path / "store")]
    for says in ("has no promoted policy yet", "holds no probe of policy-9"):
        result = CliRunner().invoke(app, call)
        assert result.exit_code == 2 and result.stderr.count("\n") == 1 and says in result.stderr
        promote(Store(tmp_path / "store"), "policy-9")


def test_a_weight_that_is_configured_stays() -> None:
    config = Config(synthesize=SMALL.model_copy(update={"evolution": EvolutionConfig(focus_weight=2.5)}))

    assert validation.set_focus(config, True) == validation.set_focus(config, False) == config
    assert validation.set_focus(Config(), False) == Config()
    assert validation.set_focus(Config(), True).synthesize.evolution.focus_weight == 1.0
