"""`headrace ground`: one request is shown with what was read of it; labelled requests give figures."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from flows.cli.main import app


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["ground", *arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def test_a_request_is_shown_with_its_values_and_what_is_unread() -> None:
    plain = run("try", "please cancel reservation b012", "--world", "hotel")
    assert "hotel/cancel_reservation" in plain and "reservation = b012" in plain
    doubtful = run("try", "please cancel reservation b012 and gift-wrap my umbrella", "--world", "hotel")
    assert "umbrella" in doubtful
    confidences = [float(output.split("confidence")[1].split()[0]) for output in (plain, doubtful)]
    assert confidences[1] < confidences[0]


def test_what_a_task_would_add_is_shown() -> None:
    named = run("try", "book a table at the Golden Bear for 2", "--world", "tests/synth/table_booking.yaml")
    assert 'given       {"restaurant":[{"name":"Golden Bear"}]}' in named and "drawn       (guest: g0" in named
    assert "no task     it does not say" in run("try", "what is room r012 like", "--world", "hotel")
    assert "given" not in run("try", "please cancel reservation b012", "--world", "hotel")


def test_labelled_requests_give_shares_of_right_frames(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [
        {"text": f"cancel reservation b0{number}", "intent": "cancel_reservation", "slots": {"reservation": f"b0{number}"}}
        for number in range(10, 30)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    output = run("bench", str(path), "--world", "hotel")
    assert "20 requests" in output and "most confident 100%" in output and "100.0%" in output


def test_wrong_input_is_one_line(tmp_path: Path) -> None:
    assert "no world is called 'hotle'; did you mean 'hotel'?" in run("try", "x", "--world", "hotle", code=2)
    assert "cannot be read" in run("bench", str(tmp_path / "nowhere.jsonl"), "--world", "hotel", code=2)


def test_requests_in_words_of_their_own_teach_the_reader(tmp_path: Path) -> None:
    """Given an intent that users word as its world does not, then a reader that has seen some of these reads more of the others."""
    path = tmp_path / "mine.jsonl"
    turns = ("scrap {} for us", "scrap booking {}", "we want {} scrapped", "please scrap {}", "could someone scrap {} today")
    rows = [
        {"text": turn.format(f"b0{number}"), "intent": "cancel_reservation", "slots": {"reservation": f"b0{number}"}}
        for number in range(10, 18)
        for turn in turns
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    shares = [
        float(line.split()[-1].rstrip("%")) for line in run("teach", str(path), "--world", "hotel").splitlines() if "100% most" in line
    ]
    assert len(shares) == 2 and shares[1] > shares[0] + 10
