"""Finds and opens query files: local paths, globs, and URLs that fsspec opens (`s3://`, `gs://`, `https://` ...), compressed or not.

The end of a file's name gives its format and compression. Local files are opened directly. This module does not read the content of a file.
"""

from __future__ import annotations

import difflib
import glob
import io
import lzma
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import fsspec
import pyarrow as pa
from fsspec.registry import known_implementations

from storage.errors import BadInput, HeadraceError

FORMATS = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".txt": "text", ".text": "text"}
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".lz4": "lz4"}
_CHANGED = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "created")
"""Fields of file systems that change with a file's content; the first available one is used."""


def locate(names: Sequence[str | Path]) -> list[str]:
    """The files of these names, in their order; the files of a pattern (`*`, `?`, `[...]`, `**`) are sorted.

    Raises:
        BadInput: a name or pattern without a file, a folder, a format that is unknown, a URL whose driver is not installed.
    """
    locations: list[str] = []
    for name in map(str, names):
        path = name.removeprefix("file://")
        locations += _on_server(path) if is_url(path) else _on_disk(path)
    for path in locations:
        if not format_of(path) or (format_of(path) == "parquet" and compression_of(path)):
            ends = f"{' '.join(FORMATS)}; all but .parquet also with {' '.join(COMPRESSIONS)} behind it"
            raise BadInput(f"{path}: unknown format; the name must end in one of {ends}")
    return locations


def is_url(path: str) -> bool:
    return "://" in path


def name_of(path: str) -> str:
    """The file's own name, without its folders."""
    return Path(urlsplit(path).path if path.startswith("http") else path).name


def format_of(path: str) -> str | None:
    """One of the values of FORMATS; None where the name says nothing that is known."""
    name = name_of(path).lower()
    return FORMATS.get(Path(name.removesuffix(Path(name).suffix) if compression_of(path) else name).suffix)


def compression_of(path: str) -> str | None:
    return COMPRESSIONS.get(Path(name_of(path).lower()).suffix)


def stamp(path: str) -> str:
    """Size and time or tag of the last change of a file.

    Raises:
        HeadraceError: the file is not there or cannot be looked at.
    """
    with reading(path):
        if not is_url(path):
            status = Path(path).stat()
            return f"{status.st_size} {status.st_mtime_ns}"
        files, place = fsspec.core.url_to_fs(path)
        info = files.info(place)
        return " ".join(str(info[key]) for key in ("size", *[key for key in _CHANGED if key in info][:1]))


def is_seekable(path: str) -> bool:
    """Whether reading can begin anywhere in the file: not where it is compressed, or on a server that does not know its size."""
    if not is_url(path):
        return compression_of(path) is None
    files, place = fsspec.core.url_to_fs(path)
    return compression_of(path) is None and files.info(place)["size"] is not None


@contextmanager
def open_stored(path: str) -> Iterator[IO[bytes]]:
    """The file's bytes as they are stored."""
    if is_url(path):
        with fsspec.open(path, "rb") as remote:
            yield remote
    else:
        with Path(path).open("rb") as local:
            yield local


@contextmanager
def open_unpacked(path: str) -> Iterator[io.BufferedReader]:
    """The file's bytes, decompressed as they are read."""
    compression = compression_of(path)
    with open_stored(path) as file, _decompress(file, compression) as stream:
        yield stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """A context that turns failures of reading a file into messages for the user.

    Raises:
        BadInput: the file is not there, damaged, or not open to us. Drivers of URLs raise whatever they like; all of it counts.
    """
    try:
        yield
    except HeadraceError:
        raise
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file") from error
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
        raise BadInput(f"{path}: damaged, truncated, or cannot be read ({_reason(error)})") from error
    except Exception as error:
        if not is_url(path):
            raise
        raise BadInput(f"{path}: cannot be read ({_reason(error)})") from error


def _decompress(file: IO[bytes], compression: str | None) -> Any:
    if compression is None:
        return file
    return lzma.LZMAFile(file) if compression == "xz" else pa.CompressedInputStream(file, compression)


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]


def _on_disk(name: str) -> list[str]:
    if Path(name).is_dir():
        raise BadInput(f"{name}: not a file; name the query files in it, e.g. with {name.rstrip('/')}/*.parquet")
    if Path(name).exists():
        if not Path(name).is_file():
            raise BadInput(f"{name}: neither a file nor a link to one, but a pipe or a device; write its content to a file first")
        return [name]
    if not glob.has_magic(name):
        raise BadInput(f"{name}: no such file{_near_name(Path(name))}")
    paths = sorted(path for path in glob.glob(name, recursive=True) if Path(path).is_file())  # noqa: PTH207 (absolute, or not)
    return paths or _nothing(name)


def _near_name(path: Path) -> str:
    names = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.with_name(near[0])}?" if near else ""


def _on_server(name: str) -> list[str]:
    protocol = name.split("://", maxsplit=1)[0]
    try:
        files, place = fsspec.core.url_to_fs(name)
    except ImportError as error:
        driver = known_implementations[protocol]["class"].split(".")[0]
        package = f"'fsspec[{'http' if protocol == 'https' else protocol}]'" if driver == "fsspec" else driver
        raise BadInput(f"{name}: the driver of {protocol}:// is not installed; get it with `pip install {package}`") from error
    except ValueError as error:
        raise BadInput(f"{name}: nothing is known of {protocol}://; known are {', '.join(sorted(known_implementations))}") from error
    with reading(name):
        is_pattern = any(mark in name for mark in ("*", "[")) or ("?" in name and not protocol.startswith("http"))
        if files.isfile(place):  # a name with a bracket in it, too
            return [name]
        if not is_pattern:
            raise BadInput(f"{name}: no such file")
        urls = sorted(files.unstrip_protocol(path) for path in files.glob(place) if files.isfile(path))
    return urls or _nothing(name)


def _nothing(pattern: str) -> list[str]:
    raise BadInput(f"{pattern}: no file matches this pattern")
