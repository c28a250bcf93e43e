"""One local S3 for all tests of this folder: fsspec keeps a client for each process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.object_store.s3_server import in_environment, make_bucket, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The URL of a bucket on a local server that this process and its children know."""
    with s3_server() as variables, in_environment(variables):
        yield make_bucket("team")
