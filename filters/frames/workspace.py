"""A run's intermediate frames on disk, so that a killed run can continue and memory holds only what a step compares.

The frames lie in `lake/_work/<run>/`. Each is written atomically, and all are deleted when the run is committed. The id of the run covers
all that a frame depends on, so an existing frame is always the right one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from storage.files import disk_errors, replace_atomically

_FORGOTTEN_AFTER_S = 7 * 86_400


class Workspace:
    """The folder of one run. Safe to share between threads, and picklable; nothing is on disk until the first frame."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, name: str) -> bool:
        return self._path(name).exists()

    def once(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """The frame of this name: read if it exists, else computed and written."""
        if not self.has(name):
            self.write(name, make())
        return self.read(name)

    def write(self, name: str, frame: pl.DataFrame) -> None:
        """Writes a frame under a name.

        Raises:
            HeadraceError: the disk is full.
        """
        with disk_errors("writing intermediate rows", self.folder):
            replace_atomically(self._path(name), lambda temporary: frame.write_parquet(temporary, compression="lz4", statistics=False))

    def read(self, name: str, columns: list[str] | None = None) -> pl.DataFrame:
        return pl.read_parquet(self._path(name), columns=columns, glob=False)

    def has_array(self, name: str) -> bool:
        return self._array_path(name).exists()

    def write_array(self, name: str, array: np.ndarray[Any, Any]) -> None:
        """Writes an array of numbers under a name, as an Arrow tensor: numpy's own header is parsed by `ast`, which Python 3.11 cannot do
        on two threads at once.

        Raises:
            HeadraceError: the disk is full.
        """

        def save(temporary: Path) -> None:
            with pa.OSFile(str(temporary), "wb") as file:
                pa.ipc.write_tensor(pa.Tensor.from_numpy(np.ascontiguousarray(array)), file)

        with disk_errors("writing intermediate rows", self.folder):
            replace_atomically(self._array_path(name), save)

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """The array of this name, memory-mapped: only the parts in use are read."""
        with pa.memory_map(str(self._array_path(name))) as file:
            array: np.ndarray[Any, Any] = pa.ipc.read_tensor(file).to_numpy()
        return array

    def clear(self) -> None:
        """Removes the folder, and the folders of runs that were killed over a week ago."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for other in self.folder.parent.glob("*"):
            with suppress(FileNotFoundError):  # its run has ended in between
                if other.stat().st_mtime < time.time() - _FORGOTTEN_AFTER_S:
                    shutil.rmtree(other, ignore_errors=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.parquet"

    def _array_path(self, name: str) -> Path:
        return self.folder / f"{name}.tensor"
