"""What a sample run trains on: shares of the items of its releases by origin (`make run`, without the report)."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.harness import ROOT, Deadline, Figures, code_mark
from storage.releases.release import manifest_of
from storage.store import Store

SAMPLE = ROOT / "configs" / "sample.yaml"
MINUTES = 12
KEPT = ROOT / ".cache" / "bench" / "links" / "sample"


def measure(_: Deadline) -> Figures:
    store = KEPT / code_mark() / "store"
    for step in ("synthesize", "curate", "train"):
        command = [sys.executable, "-m", "flows.cli.main", step, "--config", str(SAMPLE), "--store", str(store)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    origins = {f"{name}/{split}": counts for name, split, counts in _origins(Store(store))}
    for split, counts in origins.items():
        print(f"    {split}: {counts}", flush=True)
    return {
        "synthesised_share_sft1": _synthesised(origins["seed/seed"]),
        "synthesised_share_rl": _synthesised(origins["rl/rl"]),
        "release_kinds": float(len(set(origins["seed/seed"]) & set(origins["rl/rl"]))),
    }


def _origins(store: Store) -> list[tuple[str, str, dict[str, int]]]:
    releases = store.query("SELECT release_id, name FROM releases").rows()
    manifests = [(name, manifest_of(store, release)) for release, name in releases]
    return [(name, split, about["origins"]) for name, manifest in manifests for split, about in manifest["splits"].items()]


def _synthesised(counts: dict[str, int]) -> float:
    """The share of conversations; single goals of blueprints do not count."""
    return counts.get("conversation", 0) / sum(counts.values())
