"""Helpers of the compiled kernels: array types, the decorator, and texts as bytes with offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
import polars as pl

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compile_kernel(function: Kernel) -> Kernel:
    """Compiles a function at its first call and caches it on disk. It releases Python's lock, so threads run in parallel."""
    return cast(Kernel, numba.njit(cache=True, nogil=True)(function))


def text_buffer(texts: pl.Series) -> tuple[U8, I64]:
    """All texts (no nulls) as one array of UTF-8 bytes, and the offsets [rows + 1] at which each begins."""
    array = texts.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets, data = array.buffers()
    return (
        np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8),
        np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1] if offsets is not None else np.zeros(1, np.int64),
    )
