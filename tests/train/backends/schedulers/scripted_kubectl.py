"""A scripted kubectl: it talks to no cluster, and answers in the words of kubectl 1.32 and of KubeRay 1.7's statuses.

No Kubernetes cluster was at hand, so this is all that the backend kuberay was tried against.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TOOL = """#!/bin/sh
cd {state} || exit 9
echo "$*" >> calls
if [ -s broken ]; then head -n 1 broken >&2; sed -i 1d broken; exit 1; fi
for word in "$@"; do case "$word" in --*) ;; *) words="$words $word";; esac; done
set -- $words
case "$1" in
create)
  cat > given
  [ -e refusal ] && {{ cat refusal >&2; exit 1; }}
  grep -q -- --dry-run=server <<END && exit 0
$(tail -n 1 calls)
END
  name=$(sed 's/.*"kind": "RayJob", "metadata": {{"name": "\\([^"]*\\)".*/\\1/' given)
  [ -e before ] && cp before "life-$name" && rm before
  if [ -e "life-$name" ]; then echo "Error from server (AlreadyExists): rayjobs.ray.io \\"$name\\" already exists" >&2; exit 1; fi
  cp first "life-$name"; echo "$name" >> created; cp given manifest;;
get)
  if [ "$2" = pods ]; then cat pods; exit; fi
  if [ ! -s "life-$3" ]; then echo "Error from server (NotFound): rayjobs.ray.io \\"$3\\" not found" >&2; exit 1; fi
  line=$(head -n 1 "life-$3"); [ "$(wc -l < "life-$3")" -gt 1 ] && sed -i 1d "life-$3"
  case "$line" in gone) rm "life-$3"; echo "Error from server (NotFound): rayjobs.ray.io \\"$3\\" not found" >&2; exit 1;; esac
  case "$line" in *SUCCEEDED*) [ -e result ] && cp result "$(cat result_to)";; esac
  echo "$line";;
logs) [ -e log ] && cat log;;
delete) rm -f "life-$3"; echo "$3" >> deleted;;
esac
"""


def look(deployment: str, job: str = "", reason: str = "", message: str = "", **metadata: str) -> str:
    """What `kubectl get rayjob -o json` prints."""
    status = {"jobDeploymentStatus": deployment, "jobStatus": job, "reason": reason, "message": message, "rayClusterName": "headrace-x"}
    return json.dumps({"metadata": metadata, "status": {key: value for key, value in status.items() if value}})


class ScriptedKubectl:
    """A folder with the tool for the front of PATH, and what it answers. life: looks at a job that is created; the last is said again."""

    def __init__(self, folder: Path, result_to: Path) -> None:
        self.tools, self._state = folder / "bin", folder / "state"
        self.tools.mkdir(parents=True)
        self._state.mkdir()
        (self.tools / "kubectl").write_text(_TOOL.format(state=self._state))
        (self.tools / "kubectl").chmod(0o755)
        self.write("result_to", str(result_to))
        self.pods()
        self.live(look("Initializing"), look("Running", "RUNNING"), look("Complete", "SUCCEEDED"))

    def write(self, name: str, text: str) -> None:
        """Sets what the tool answers: refusal, broken, log, result."""
        (self._state / name).write_text(text)

    def forget(self, name: str) -> None:
        (self._state / name).unlink(missing_ok=True)

    def live(self, *looks: str) -> None:
        """The life of the next job that is created."""
        self.write("first", "".join(f"{line}\n" for line in looks))

    def start(self, name: str, *looks: str) -> None:
        """A job that another launcher has created. A look `gone`: it is there no more."""
        self.write(f"life-{name}", "".join(f"{line}\n" for line in looks))

    def pods(self, *statuses: Mapping[str, Any]) -> None:
        self.write("pods", json.dumps({"items": [{"status": status} for status in statuses]}))

    def lines(self, name: str) -> Sequence[str]:
        """Lines of calls, created or deleted."""
        path = self._state / name
        return path.read_text().splitlines() if path.exists() else []

    @property
    def manifest(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads((self._state / "manifest").read_text())
        return made
