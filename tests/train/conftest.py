"""A fixture for stages that run in the process of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="module")
def in_process() -> Iterator[None]:
    """Restores the settings of torch: a stage makes it deterministic and single-threaded."""
    threads = torch.get_num_threads()
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
