"""Secrets are known by their values, and masked in every spelling wherever text leaves."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from flows.runtime.notes.run_records import add_record, notes_folder, page_of, read_records
from flows.yaml_config import ConfigError, load
from storage.errors import BadInput, HeadraceError
from storage.outside import known_secrets
from storage.outside.known_secrets import declare_secrets, holds_secret, is_secret_name, looks_random, mask, mask_logins, shown, split_login
from storage.store import Journal, Store
from storage.tables import TABLES
from synth.engines.http import JsonServer
from synth.worlds.live.live_spec import parse_live_spec

KEY = 'sk-1234"567\\89/ä'


@pytest.fixture(autouse=True)
def of_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_secrets, "_declared", set())
    monkeypatch.setenv("SOME_API_KEY", KEY)


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "db_password", "X-Api-Key", "TOKEN_OF_MINE"])
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)
    assert not is_secret_name("OMP_NUM_THREADS")


def test_a_secret_is_masked_as_it_is_and_as_json_and_urls_write_it() -> None:
    for text in (KEY, json.dumps({"a": KEY}), json.dumps(KEY, ensure_ascii=False), "?k=sk-1234%22567%5C89%2F%C3%A4"):
        assert "567" not in mask(f"before {text} after") and "(secret)" in mask(text)
    assert mask("nothing in it") == "nothing in it"


def test_short_values_numbers_and_paths_are_no_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for value in ("abc", "123456789012", "1234567890.25", str(tmp_path)):
        monkeypatch.setenv("MY_TOKEN", value)
        declare_secrets(*filter(looks_random, [value]))
        assert mask(f"see {value}") == f"see {value}"


WORDS = {"POSTGRES_PASSWORD": "postgres", "SORT_KEY": "order_id", "MAX_TOKENS": "unlimited", "OPENAI_API_KEY": "not-needed"}


def test_rows_do_not_depend_on_words_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Given variables that look like secrets by their names alone, then rows are those of a machine without them."""
    row = dict.fromkeys(TABLES["tools"].columns) | {
        "tool_id": "order_id-1",
        "name": "unlimited",
        "parameters": '{"order_id": 7, "key": "not-needed"}',
        "description": "the postgres server",
    }
    frame = pl.DataFrame([row], schema=TABLES["tools"].columns)
    plain = Store(tmp_path / "plain").write("tools", "tools-1", frame)
    for name, value in WORDS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DATABASE_URL", "postgresql://postgres:postgres@host/orders")
    JsonServer("http://host", WORDS["OPENAI_API_KEY"], in_flight=1, timeout_s=1, tries=1, name="x")
    part = Store(tmp_path / "here").write("tools", "tools-1", frame)
    assert part.content_hash == plain.content_hash
    assert pl.read_parquet(tmp_path / "here" / part.path).row(0, named=True) == row


def test_an_id_is_never_masked(tmp_path: Path) -> None:
    row = dict.fromkeys(TABLES["clusters"].columns) | {"cluster_id": KEY, "domain": KEY, "tool_ids": [None, f"a {KEY}", "b"]}
    part = Store(tmp_path).write("clusters", "clusters-1", pl.DataFrame([row], schema=TABLES["clusters"].columns))
    kept = pl.read_parquet(tmp_path / part.path).row(0, named=True)
    assert (kept["cluster_id"], kept["domain"], kept["tool_ids"]) == (KEY, "(secret)", [None, "a (secret)", "b"])


def test_a_secret_is_masked_as_a_whole_word_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "sk-learning")
    for text in ("task-learning", "sk-learnings", "ask-learning-rate"):
        assert mask(text) == text
    for before in ("", "key=", "a\n", r"a\n", r"a\u0007", "a%20", "\x1b[31m", "\x1b[2J", "\x9b31m", "密钥", "_", "Bearer "):
        for after in ("", '"', r"\n", "\n", "%20", "密", "_", "."):
            assert mask(f"{before}sk-learning{after}") == f"{before}(secret){after}"


def test_a_paid_answer_with_numbers_stays_whole_in_the_journal(tmp_path: Path) -> None:
    """Given a key of digits, and a text that JSON would write as a number, then numbers of an answer stay numbers."""
    declare_secrets("00000000", "12345678.5", "1234e5678")
    kept = {"tokens": [100000000, 12345678.5], "text": "00000000 of it", "key": KEY, KEY: 1}
    with Journal(tmp_path / "answers.jsonl") as journal:
        journal.append(f"id {KEY}", kept)
    masked = {"tokens": [100000000, 12345678.5], "text": "00000000 of it", "key": "(secret)", "(secret)": 1}
    assert Journal(tmp_path / "answers.jsonl").entries() == {f"id {KEY}": masked}


def test_logins_of_urls_are_masked_also_unknown_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mask_logins("at http://ann:pa55@host/v1?sig=abc&x=1") == "at http://(secret)@host/v1?sig=(secret)&x=1"
    monkeypatch.setenv("SERVER", "https://ann:long%20password@host/v1")
    assert "password" not in mask("user ann, long password") and "password" not in mask("long%20password")
    assert split_login("http://ann:pa%20ssword@host:80/v1") == ("http://host:80/v1", "ann:pa ssword")
    assert mask("pa ssword") == "(secret)"
    assert split_login("http://host/v1") == ("http://host/v1", "") and split_login("host:80/v1")[0] == "host:80/v1"


def test_errors_are_safe_to_show() -> None:
    for kind in (HeadraceError, BadInput):
        assert str(kind(f"\x1b[2J{KEY} at http://u:p@h")) == "\ufffd[2J(secret) at http://(secret)@h"
    declare_secrets("declared-secret")
    assert shown("declared-secret") == "(secret)"


def test_rows_journals_and_lists_hold_no_secret(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with store.journal("notes") as journal:
        journal.append("key", {"text": f"echo {KEY}"})
        assert journal.entries() == {"key": {"text": "echo (secret)"}}
    row = dict.fromkeys(TABLES["tools"].columns) | {"tool_id": "t", "name": KEY, "parameters": json.dumps({"d": KEY})}
    cluster = dict.fromkeys(TABLES["clusters"].columns) | {"cluster_id": "c", "tool_ids": ["a", KEY]}
    for table, values in (("tools", row), ("clusters", cluster)):
        part = store.write(table, f"{table}-1", pl.DataFrame([values], schema=TABLES[table].columns))
        store.commit([part])
    assert store.query("SELECT name, parameters FROM tools").row(0) == ("(secret)", '{"d": "(secret)"}')
    assert store.query("SELECT tool_ids FROM clusters").item().to_list() == ["a", "(secret)"]


def test_a_configuration_holds_no_secret(tmp_path: Path) -> None:
    from flows.config import Config

    file = tmp_path / "c.yaml"
    for value in ("http://ann:pa55word@host/v1", json.dumps(KEY)):
        file.write_text(f"curate:\n  semantic:\n    encoder:\n      model: m\n      server: {value}\n")
        with pytest.raises(ConfigError, match=r"c\.yaml:5: a password or key stands here.*set it in the environment") as raised:
            load(file, Config)
        assert "pa55word" not in str(raised.value) and "567" not in str(raised.value)


@pytest.mark.parametrize(
    "more",
    [
        {"url": "http://ann:pa55@host/mcp"},
        {"headers": {"Authorization": "Bearer abc"}},
        {"headers": {"X-Api-Key": "abc"}},
        {"headers": {"X-Other": KEY}},
        {"variables": {"DB": "postgres://ann:pa55@host"}},
    ],
)
def test_a_live_world_names_its_secrets_and_holds_none(more: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="`secrets`"):
        parse_live_spec({"live": "shop", "url": "http://host/mcp"} | more, "shop.yaml")
    parse_live_spec({"live": "shop", "url": "http://host/mcp", "secrets": ["K"], "headers": {"X-Api-Key": "${K}"}}, "shop.yaml")


def test_the_server_of_prefect_is_noted_without_its_login(tmp_path: Path) -> None:
    notes_folder(tmp_path).mkdir()
    url = "http://ann:pa55word@prefect/api"
    for _ in range(2):
        add_record(tmp_path, url)
    assert read_records(tmp_path) == ["http://(secret)@prefect/api"] and "pa55word" not in page_of(url, "x")
    assert holds_secret(url)
