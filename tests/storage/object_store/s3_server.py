"""A local S3: moto's server in a process of its own, which answers one request at a time, so that a conditional write is one step."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_SERVE = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
"""
START_S = 60.0


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """The environment variables of clients of a server that ends with the block. They name its address and some credentials."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", _SERVE, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START_S
        while not _answers(port):
            assert process.poll() is None and time.monotonic() < end, "moto's server did not start"
            time.sleep(0.05)
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        process.kill()
        process.wait()


def make_bucket(name: str) -> str:
    """The URL of a new bucket on the server that this process's environment names."""
    import boto3

    boto3.client("s3").create_bucket(Bucket=name)
    return f"s3://{name}"


@contextmanager
def in_environment(variables: dict[str, str]) -> Iterator[None]:
    """This process is a client of the server too, for the block."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
