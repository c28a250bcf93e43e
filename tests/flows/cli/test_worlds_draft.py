"""`headrace worlds draft` takes several tables, and its spec can be read at once."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from flows.cli.main import app


def test_tables_after_the_first_are_tables_too(tmp_path: Path) -> None:
    rooms, bookings = tmp_path / "rooms.csv", tmp_path / "bookings.csv"
    rooms.write_text("title,price\n" + "".join(f"Room {n},{50 + n}\n" for n in range(60)), encoding="utf-8")
    bookings.write_text("guest,room\n" + "".join(f"Guest {n},Room {n % 60}\n" for n in range(80)), encoding="utf-8")
    out = tmp_path / "inn.yaml"
    result = CliRunner().invoke(app, ["worlds", "draft", "--tables", str(rooms), str(bookings), "--out", str(out)])
    assert result.exit_code == 0 and "it compiles as it is" in result.output
    text = out.read_text(encoding="utf-8")
    assert "rooms.csv" in text and "bookings.csv" in text and "type: ref, to: room" in text
