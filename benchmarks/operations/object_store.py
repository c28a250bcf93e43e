"""Whether a store that machines share through an object store is the store that one machine makes: configs/ci.yaml, on a local S3.

One machine begins and is killed (kill -9) in the middle of its cascade, another machine (another folder) goes on once the first one's lease
has run out. Both copies must have the content hash of an undisturbed local run. The S3 is moto's server (extra `test`), which shows what
is right, not what is fast.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import ROOT
from storage.store import Store
from tests.storage.object_store.s3_server import in_environment, make_bucket, s3_server

_CONFIG = ROOT / "configs" / "ci.yaml"
_MOST_S = 1800.0


def measure() -> dict[str, float]:
    """`object_store_equal`: 1 if all content hashes are equal, else 0; the wall time of the runs; objects and bytes under the URL.

    Raises:
        RuntimeError: a run failed, or was done before it could be killed.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-shared-") as scratch, s3_server() as variables, in_environment(variables):
        local, first, second = (Path(scratch, name) for name in ("local", "first", "second"))
        url = f"{make_bucket('team')}/ci"
        begun = time.monotonic()
        _finish(local, "null")
        local_s = time.monotonic() - begun
        _kill_in_the_cascade(first, url)
        begun = time.monotonic()
        _finish(second, url)
        resumed_s = time.monotonic() - begun
        stores = [Store(folder / "store") for folder in (local, first, second)]
        stores[1].pull()
        hashes = {store.content_hash() for store in stores}
        count, size = _objects(url)
    return {
        "object_store_equal": float(len(hashes) == 1),
        "object_store_local_run_s": local_s,
        "object_store_resumed_run_s": resumed_s,
        "object_store_objects": count,
        "object_store_bytes": size,
    }


def _start(folder: Path, url: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    config = folder / "ci.yaml"
    text = _CONFIG.read_text().replace("store: runs/ci/store", f"store: {json.dumps(str(folder / 'store'))}\nobject_store: {url}")
    config.write_text(text)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "flows.cli.main", "run", "--config", str(config)]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)


def _finish(folder: Path, url: str) -> None:
    process = _start(folder, url)
    try:
        code = process.wait(_MOST_S)
    finally:
        process.kill()
    if code:
        raise RuntimeError(f"the run in {folder} ended with {code}: {(folder / 'log').read_text()[-2000:]}")


def _kill_in_the_cascade(folder: Path, url: str) -> None:
    """Runs until the first stage is committed, kills the process, and waits until its lease has run out."""
    from storage.object_store.flow_lease import LEASE_S

    process = _start(folder, url)
    ends = time.monotonic() + _MOST_S
    while not (folder / "store").is_dir() or Store(folder / "store").query("FROM stages").is_empty():
        if process.poll() is not None or time.monotonic() > ends:
            process.kill()
            raise RuntimeError(f"the run in {folder} ended before it was killed: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.5)
    process.kill()
    process.wait()
    time.sleep(LEASE_S)


def _objects(url: str) -> tuple[float, float]:
    """Number and bytes of all objects under the URL."""
    import fsspec

    files, root = fsspec.core.url_to_fs(url)
    found = files.find(root, detail=True).values()
    return float(len(found)), float(sum(each["size"] for each in found))


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
