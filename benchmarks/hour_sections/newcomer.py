"""A newcomer's first hour: the steps of `newcomer_steps.py` in a fresh clone, each judged, with a transcript to read.

hour_steps: steps tried. hour_failed: steps with another exit status, without what they must say or make, with a traceback or an
unexpected error, or with a refusal of more than three lines. hour_minutes: wall minutes from a world of the newcomer's own to
conversations, a trained and gated policy, and a chat with it. english_world_chinese_chars: Chinese characters in any text of the store of
that world, whose spec says `languages: [en]`.
The transcript is `.cache/bench/hour/transcript.md`.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

from benchmarks.harness import ROOT, Deadline, Figures
from benchmarks.hour_sections.newcomer_files import write_files
from benchmarks.hour_sections.newcomer_steps import IDS, MINE, STEPS, Step
from benchmarks.house_sections.clones import clone_commit, clone_environment
from storage.store import Store

KEYS = ("hour_steps", "hour_failed", "hour_minutes", "english_world_chinese_chars")
MINUTES = 25
WORK = ROOT / ".cache" / "bench" / "hour"
_STEP_LIMIT_S = 1_200.0
_REFUSAL_LINES = 3
_NEVER = (r"Traceback \(most recent call last\)", r"\bunexpected \w*(Error|Exception)", r"\x1b\]")
_CHINESE = "[\u3400-\u9fff\uf900-\ufaff]"
_SHOWN_CHARS = 6_000


def measure(_: Deadline) -> Figures:
    clone = clone_commit("HEAD", WORK / "clone")
    files = WORK / "files"
    write_files(files)
    environment = clone_environment(clone) | {"PATH": f"{clone / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    transcript, failed, product_s = ["# A newcomer's first hour\n"], 0, 0.0
    for number, step in enumerate(STEPS, 1):
        command = _fill(step.command, clone, files)
        began = time.monotonic()
        status, output = _run(command, clone, environment)
        seconds = time.monotonic() - began
        product_s += seconds if step.is_first_product else 0.0
        faults = judge(step, status, output, clone)
        failed += bool(faults)
        print(f"    {number:2d}. {step.aim}: {'; '.join(faults) or 'ok'} ({seconds:.1f} s)", flush=True)
        transcript.append(_entry(number, step, command, status, seconds, output, faults))
        (WORK / "transcript.md").write_text("\n".join(transcript), encoding="utf-8")
    return {
        "hour_steps": len(STEPS),
        "hour_failed": failed,
        "hour_minutes": product_s / 60,
        "english_world_chinese_chars": count_chinese(clone / MINE),
    }


def judge(step: Step, status: int, output: str, folder: Path) -> list[str]:
    """What is wrong with a step's result; empty if nothing is."""
    faults = [f"exit status {status}, not {step.status}"] if status != step.status else []
    faults += [f"does not say {pattern!r}" for pattern in step.says if not re.search(pattern, output)]
    faults += [f"says {found[0]!r}" for pattern in (*_NEVER, *step.never) if (found := re.search(pattern, output))]
    faults += [f"{name} is not there" for name in step.makes if not (folder / name).exists()]
    if step.status in (1, 2) and (lines := len(output.strip().splitlines())) > _REFUSAL_LINES and "doctor" not in step.command:
        faults.append(f"a refusal of {lines} lines")
    return faults


def count_chinese(folder: Path) -> int:
    """Chinese characters in all columns of text of a store's tables."""
    store = Store(folder)
    tables = store.query("SELECT DISTINCT table_name FROM information_schema.tables")["table_name"]
    texts = (store.query(f'SELECT COLUMNS(*)::VARCHAR FROM "{name}"') for name in tables)
    return sum(int(frame[column].str.count_matches(_CHINESE).sum()) for frame in texts for column in frame.columns if frame.height)


def _fill(command: str, clone: Path, files: Path) -> str:
    for name, one in IDS.items():
        if f"{{{name}}}" in command:
            rows = Store(clone / one.store).query(one.sql).rows()
            command = command.replace(f"{{{name}}}", str(rows[0][0]) if rows else f"no-{name}")
    return command.replace("{files}", str(files))


def _run(command: str, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Exit status as a shell tells it, and output. Without a terminal, so the width is that of a pipe (80 columns)."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_STEP_LIMIT_S,
        check=False,
    )
    return (done.returncode if done.returncode >= 0 else 128 - done.returncode), done.stdout.decode(errors="replace")


def _entry(number: int, step: Step, command: str, status: int, seconds: float, output: str, faults: list[str]) -> str:
    shown = output if len(output) <= _SHOWN_CHARS else f"{output[:_SHOWN_CHARS]}\n... {len(output) - _SHOWN_CHARS} more characters"
    verdict = f"\n**Fault: {'; '.join(faults)}**\n" if faults else ""
    return f"## {number}. {step.aim}\n\n```\n$ {command}\n{shown.rstrip()}\n```\n({seconds:.1f} s, status {status}){verdict}\n"
