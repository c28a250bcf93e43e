"""The files that a newcomer brings: a business, a log of queries, a catalogue of tools, and files that are wrong.

All are written here, seeded, into one folder: the script of the hour (`newcomer_steps.py`) names them `{files}/NAME`.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

SPEC = Path(__file__).parent / "files" / "bike_hire.yaml"
_LOG_ROWS = 3_000

_REQUESTS = (
    "extend hire h{n} by {d} days",
    "can I keep bike bk{n} until next week? I am rider r{n}",
    "my electric bike broke down near {place}, what now",
    "how much is a cargo bike for {d} days at {place}",
    "refund the credit of rider r{n}, I was charged twice for {d} days",
    "do you have child seats for city bikes at {place}",
    "if it rains on {place} day I want my money back, can you do that, else move hire h{n} by {d} days",
    "which station near {place} has free racing bikes right now",
)
_PLACES = ("Harbour Square", "North Gate", "the old mill", "Station Road", "Lake View", "the museum")
_JUNK = ("asdfgh", "Hello tehre. hi", "test test", "thanks!!", "???")


def write_files(folder: Path) -> None:
    """Writes every file of the hour into an empty or new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(SPEC, folder / "bike_hire.yaml")
    rng = random.Random(0)
    _write_log(folder, rng)
    _write_tools(folder / "tools.jsonl")
    spec = SPEC.read_text(encoding="utf-8")
    for name, edit in BROKEN_SPECS.items():
        text = edit(spec)
        assert text != spec, name
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    (folder / "empty.yaml").write_text("# nothing is set here yet\n", encoding="utf-8")
    (folder / "typo.yaml").write_text("train:\n  eval_task: 20\n", encoding="utf-8")
    (folder / "small.yaml").write_text("train: {eval_tasks: 60, eval_out_tasks: 60}\n", encoding="utf-8")
    (folder / "not_text.jsonl").write_bytes(bytes(range(256)) * 40)


def _replace(old: str, new: str) -> Callable[[str], str]:
    return lambda spec: spec.replace(old, new, 1)


BROKEN_SPECS: dict[str, Callable[[str], str]] = {
    "unknown_entity": _replace("{type: ref, to: station}", "{type: ref, to: statoin}"),
    "idle_rule": _replace("if: hire.extensions < 2", "if: hire.extensions < 9"),
    "bad_expression": _replace("hire.until + days", "hire.until + day"),
    "few_rows": _replace("rows: 110", "rows: 3"),
    "tabbed": _replace("  station:\n    noun", "  station:\n\tnoun"),
}
"""Name of a wrong spec -> what it makes of the right one."""


def _write_log(folder: Path, rng: random.Random) -> None:
    rows = []
    for number in range(_LOG_ROWS):
        text = rng.choice(_JUNK) if rng.random() < 0.1 else rng.choice(_REQUESTS)
        text = text.format(n=rng.randint(100, 999), d=rng.randint(2, 9), place=rng.choice(_PLACES))
        text = f"hi, {text}" if rng.random() < 0.2 else text
        rows.append({"ticket": f"T-{number:05d}", "prompt": text, "channel": rng.choice(("app", "mail")), "stars": rng.randint(1, 5)})
    with (folder / "log.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows[: len(rows) // 2])
    with gzip.open(folder / "more.jsonl.gz", "wt", encoding="utf-8") as packed:
        packed.writelines(json.dumps(row) + "\n" for row in rows[len(rows) // 2 :])


def _write_tools(path: Path) -> None:
    def tool(server: str, tool_name: str, description: str, /, **parameters: str) -> dict[str, object]:
        properties = {key: {"type": kind} for key, kind in parameters.items()}
        schema = {"type": "object", "properties": properties, "required": list(parameters)[:1]}
        return {"server": server, "label": "Cycling", "name": tool_name, "description": description, "input_schema": schema}

    tools = [
        tool("weather", "get_forecast", "The weather at a place on a day.", place="string", day="string"),
        tool("weather", "list_warnings", "Warnings of storms for a region.", region="string"),
        tool("routes", "find_route", "A cycle route between two places, with its route id.", start="string", end="string"),
        tool("routes", "get_route", "The turns of a route by its route id.", route_id="string"),
        tool("routes", "share_route", "Send a route to a rider by e-mail.", route_id="string", email="string"),
        tool("repairs", "find_workshop", "Workshops near a place, with their workshop ids.", place="string"),
        tool("repairs", "book_repair", "Book a repair at a workshop.", workshop_id="string", day="string"),
        tool("repairs", "cancel_repair", "Cancel a booked repair by its booking id.", booking_id="string"),
        tool("parts", "search_parts", "Search spare parts by name and price.", name="string", max_price="number"),
        tool("parts", "order_part", "Order a spare part to an address.", part_id="string", address="string"),
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in tools), encoding="utf-8")
