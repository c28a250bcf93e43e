"""Reads rendered files as ROLL does, in `.venv-roll`: python -m benchmarks.cluster.roll_sections.roll_configs FOLDER.

The folder's `files.json` lists each file with the GPUs of a node; `refused.json` gets a line for each that ROLL's strict parser, or the
asserts behind it, refuse, or whose GPUs ROLL then lays out otherwise than the file says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.cluster.roll_sections.roll_play import read_config


def refusal(path: Path, gpus: int) -> str:
    """What ROLL says against a file; empty if it takes it."""
    try:
        config = read_config(path, gpus)
    except Exception as error:  # dacite, ROLL's asserts and its models each raise their own
        return f"{path.name}: {type(error).__name__}: {error}"
    return "" if config.num_gpus_per_node == gpus else f"{path.name}: ROLL plans with {config.num_gpus_per_node} GPUs a node"


def main(folder: Path) -> None:
    files = json.loads((folder / "files.json").read_text())
    refused = [said for file in files if (said := refusal(Path(file["path"]), file["gpus"]))]
    (folder / "refused.json").write_text(json.dumps(refused))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
