"""Scripted sbatch, squeue, sacct and scancel: they run nothing, and answer with lines of Slurm 22.05.8.

It printed those of FAILED, CANCELLED, TIMEOUT, PREEMPTED and NODE_FAIL here; OUT_OF_MEMORY, BOOT_FAIL and DEADLINE are from its manual.
They show what the launcher does with answers that a real cluster gives only when something is wrong with it; `test_on_slurm.py` has the
real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_TOOL = """#!/bin/sh
cd {state} || exit 9
echo "{name} $*" >> calls
if [ -s broken ]; then head -n 1 broken >&2; sed -i 1d broken; exit 1; fi
{body}
"""
_BODIES = {
    "sbatch": """cat > given
case "$*" in *--test-only*) [ -e refusal ] && {{ cat refusal >&2; exit 1; }}; echo "sbatch: Job 3 to start at ..." >&2; exit 0;; esac
[ -e refusal ] && {{ cat refusal >&2; exit 1; }}
echo >> jobs; cp first life; cp given submitted
if [ -e lost ]; then cat lost >&2; rm lost; exit 1; fi
echo $((40 + $(wc -l < jobs)))""",
    "squeue": """[ -s life ] || exit 0
line=$(head -n 1 life); [ "$(wc -l < life)" -gt 1 ] && sed -i 1d life
case "$line" in *COMPLETED*) [ -e result ] && cp result "$(cat result_to)";; esac
[ "$line" = forgotten ] || echo "$line" | tr ';' '\\n' | sed "s/^ID/$((40 + $(wc -l < jobs)))/" """,
    "sacct": """[ -e accounts ] || {{ echo "Slurm accounting storage is disabled" >&2; exit 1; }}
cat accounts""",
    "scancel": """sed -i 's/|PENDING|\\|RUNNING|/|CANCELLED|/' life
echo 'ID_1|CANCELLED|0|main|None|' > life""",
}


class ScriptedSlurm:
    """A folder of tools for the front of PATH, and what they answer.

    life: lines of squeue for a job that is submitted, one look after another; the last is said again and again. Several tasks of a look are
    separated by `;`, and `ID` is the job's id: 41 for the first.
    """

    def __init__(self, folder: Path, result_to: Path) -> None:
        self.tools, self._state = folder / "bin", folder / "state"
        self.tools.mkdir(parents=True)
        self._state.mkdir()
        for name, body in _BODIES.items():
            tool = self.tools / name
            tool.write_text(_TOOL.format(state=self._state, name=name, body=body.format()))
            tool.chmod(0o755)
        self.write("result_to", str(result_to))
        self.live("ID_1|PENDING|0|main|Priority|", "ID_1|RUNNING|0|main|None|", "ID_1|COMPLETED|0|main|None|")

    def write(self, name: str, text: str) -> None:
        """Sets what the tools answer: refusal, lost, broken, accounts, result."""
        (self._state / name).write_text(text)

    def live(self, *looks: str) -> None:
        """The life of the next job that is submitted."""
        self.write("first", "".join(f"{line}\n" for line in looks))

    def start(self, *looks: str) -> None:
        """A job that another launcher has submitted."""
        self.write("jobs", "\n")
        self.write("life", "".join(f"{line}\n" for line in looks))

    def forget(self, name: str) -> None:
        (self._state / name).unlink(missing_ok=True)

    def calls(self, tool: str) -> Sequence[str]:
        """The arguments of each call of a tool."""
        path = self._state / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{tool} ")]

    @property
    def submissions(self) -> int:
        path = self._state / "jobs"
        return len(path.read_text().splitlines()) if path.exists() else 0

    @property
    def submitted(self) -> str:
        """The script of the last job."""
        return (self._state / "submitted").read_text()
