"""The queue of trajectories among faults and kills: what is lost, what is played or learned from twice.

A stage with four workers and slow tools, while 5 % of the tools' calls fail, 5 % of the requests to the reward service get no verdict (an
error of the server, or a closed connection), workers are killed (SIGKILL) every few seconds, and the trainer is killed twice and started
again. Then the stage is repeated from its journal.

stale_dropped         trajectories that were older than the bound and played again
partial_resumed       trajectories that one version or worker began and another ended
reward_retries        requests that were sent again to the reward service
lost_trajectories     records that an earlier journal had and a later one lacks, and what `queue_audit.py` finds missing: draws that a step
                      learned from and that never arrived, groups that are neither learned from, left out, nor given up, and
                      conversations that the death of workers alone ended
doubled_trajectories  tickets that arrived more than once, and groups and steps that were learned from or left out more than once
journal_repeats       1: the repeated stage has the same weights, to the bit
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.cluster.queue_sections import queue_speed
from benchmarks.cluster.queue_sections.queue_audit import audit
from benchmarks.cluster.queue_sections.slow_calls import CALL_S, FAULTS, STRAGGLER
from benchmarks.harness import ROOT, Deadline, Figures
from train.rl.trajectories.queue_journal import JOURNAL, DroppedRecord, Record, read_journal
from train.rl.trajectories.queue_ledger import Trajectory
from train.rl.trajectories.reward_service import Handler

if TYPE_CHECKING:
    from train.spec import StageSpec

KEYS = ("stale_dropped", "partial_resumed", "reward_retries", "lost_trajectories", "doubled_trajectories", "journal_repeats")
MINUTES = 12
SHARE = 0.05
STEPS, BOUND, TRAINER_KILLS, BETWEEN_S = 24, 2, 2, 4.0
_random = random.Random(36)


class _FaultyHandler(Handler):
    """The reward service, which gives no verdict on one request in twenty."""

    def do_POST(self) -> None:
        if _random.random() < SHARE:
            if _random.random() < 0.5:
                self.close_connection = True
                self.connection.close()
            else:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_error(503)
            return
        super().do_POST()


@contextmanager
def faulty_service() -> Iterator[str]:
    """URL of a reward service in this process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _FaultyHandler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign, assignment]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


def measure(deadline: Deadline) -> Figures:
    with tempfile.TemporaryDirectory(prefix="headrace-faults-") as scratch, faulty_service() as url:
        make = queue_speed.slow_stage(Path(scratch))
        settings = {"max_steps": STEPS, "staleness": BOUND, "rollout_workers": 4, "checkpoint_steps": 5, "reward_url": url}
        folder = Path(scratch) / "faulty"
        folder.mkdir()
        spec = make(0, **settings).model_copy(update={"model_out": folder / "model"})
        torn = _run_among_kills(spec, folder)
        records = read_journal(folder / JOURNAL)
        metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        repeated = queue_speed.run_spec(spec, Path(scratch) / "repeated", "repeated from its journal", folder / JOURNAL)
        assert spec.rl is not None
        lost, doubled = audit(records, spec.rl.draws)
        first, again = (json.loads((path / "result.json").read_text())["weights_hash"] for path in (folder, repeated.folder))
        return {
            "stale_dropped": float(sum(isinstance(record, DroppedRecord) for record in records)),
            "partial_resumed": float(sum(isinstance(record, Trajectory) and record.is_resumed for record in records)),
            "reward_retries": sum(row["reward_retries"] for row in metrics),
            "lost_trajectories": float(lost + torn),
            "doubled_trajectories": float(doubled),
            "journal_repeats": float(first == again),
        }


def _run_among_kills(spec: StageSpec, folder: Path) -> int:
    """Runs the stage to its end; the number of records that an earlier journal had and the next one lacks."""
    (folder / "spec.json").write_text(spec.model_dump_json())
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = os.environ | threads | {STRAGGLER: queue_speed.SLOW_WORLD, CALL_S: str(queue_speed.CALL_SECONDS), FAULTS: str(SHARE)}
    command = [sys.executable, "-P", "-m", "benchmarks.cluster.queue_sections.slow_worlds", str(folder / "spec.json")]
    earlier: list[Record] = []
    missing = trainers = workers = 0
    while not (folder / "result.json").exists():
        with (folder / "log.txt").open("ab") as log:
            stage = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        while stage.poll() is None:
            time.sleep(BETWEEN_S)
            steps = _steps(folder)
            if trainers < TRAINER_KILLS and steps >= (trainers + 1) * STEPS // (TRAINER_KILLS + 1):
                stage.kill()
                trainers += 1
            elif steps and (children := _rollout_workers(stage.pid)):
                os.kill(_random.choice(children), signal.SIGKILL)
                workers += 1
        if stage.returncode not in (0, -signal.SIGKILL):
            raise RuntimeError(f"the stage ended with code {stage.returncode}: {(folder / 'log.txt').read_text()[-2000:]}")
        records = read_journal(folder / JOURNAL)
        missing += sum(one != other for one, other in zip(earlier, records, strict=False)) + max(0, len(earlier) - len(records))
        earlier = records
    print(f"    killed: trainer {trainers}, workers {workers}; records {len(earlier)}", flush=True)
    return missing


def _steps(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _rollout_workers(pid: int) -> list[int]:
    """Process ids of the workers that have played a while; the reward service and Python's resource tracker are none."""
    try:
        children = psutil.Process(pid).children()
        return [child.pid for child in children if "spawn_main" in " ".join(child.cmdline()) and child.create_time() < time.time() - 10]
    except psutil.Error:
        return []


if __name__ == "__main__":
    print(measure(Deadline(time.monotonic() + 3600)))
