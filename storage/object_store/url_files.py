"""Files under one URL of any kind that fsspec knows (`s3://` with s3fs, `gs://` with gcsfs).

One idea: names are relative to the URL, as paths are to a store's folder. An object is whole or absent, so an immutable file that is there
with its full size need not be sent again. `create` refuses a name that is taken: the only operation by which machines agree.

It interprets no file, and keeps no listing: each question goes to the URL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import fsspec

from storage.errors import BadInput, HeadraceError, OutOfReach
from storage.files import replace_atomically


@contextmanager
def damage_told(where: str, cure: str) -> Iterator[None]:
    """Around reading JSON: what it cannot be read as becomes a HeadraceError that names the place and what to do."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HeadraceError(f"{where} is damaged: {cure}") from error


class UrlFiles:
    """The files under `url`.

    Raises:
        BadInput: the driver for this kind of URL is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            self._files, self._root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise BadInput(f"{url}: {' '.join(str(error).split())}") from error

    def check(self) -> None:
        """Raises BadInput if the URL cannot be written."""
        try:
            self._files.makedirs(self._root, exist_ok=True)
            self._files.pipe_file(f"{self._root}/.headrace", b"")
        except Exception as error:
            raise BadInput(f"{self.url} cannot be written: {' '.join(str(error).split()) or type(error).__name__}") from error

    def has(self, name: str) -> bool:
        with self._reaching(name):
            return bool(self._files.exists(f"{self._root}/{name}"))

    def names(self, folder: str) -> list[str]:
        """Names of all files under a folder, sorted."""
        with self._reaching(folder), suppress(FileNotFoundError):
            return sorted(self._name(path) for path in self._files.find(f"{self._root}/{folder}"))
        return []

    def sizes(self, folder: str) -> dict[str, int]:
        """Name of each file under a folder -> its bytes."""
        with self._reaching(folder), suppress(FileNotFoundError):
            found = self._files.find(f"{self._root}/{folder}", detail=True)
            return {self._name(path): int(each["size"]) for path, each in found.items()}
        return {}

    def folders(self, name: str) -> list[str]:
        """Names of the folders in a folder."""
        with self._reaching(name), suppress(FileNotFoundError):
            return [self._name(each["name"]) for each in self._files.ls(f"{self._root}/{name}", detail=True) if each["type"] == "directory"]
        return []

    def read(self, name: str) -> bytes | None:
        """The content of a file; None: it is not there."""
        with self._reaching(name), suppress(FileNotFoundError):
            return bytes(self._files.cat_file(f"{self._root}/{name}"))
        return None

    # ---- sending -------------------------------------------------------------------------------------------------------

    def create(self, name: str, content: bytes) -> bool:
        """Writes a file unless the name is taken, in one step; whether it was free."""
        with self._reaching(name):
            try:
                self._files.pipe_file(f"{self._root}/{name}", content, mode="create")
            except FileExistsError:
                return False
            except OSError as error:
                if any(words in str(error) for words in ("PreconditionFailed", "ConditionalRequestConflict", "pre-conditions")):
                    return False
                raise
        return True

    def write(self, name: str, content: bytes) -> None:
        with self._reaching(name):
            self._files.pipe_file(f"{self._root}/{name}", content)

    def send(self, path: Path, name: str) -> None:
        with self._reaching(name):
            self._files.makedirs(f"{self._root}/{name}".rpartition("/")[0], exist_ok=True)
            self._files.put_file(str(path), f"{self._root}/{name}")

    def send_once(self, path: Path, name: str) -> None:
        """Sends an immutable file, unless it is there with its full size."""
        with self._reaching(name), suppress(FileNotFoundError):
            if self._files.size(f"{self._root}/{name}") == path.stat().st_size:
                return
        self.send(path, name)

    def send_folder(self, folder: Path, name: str, last: str = "", skip: Callable[[Path], bool] = lambda _: False) -> None:
        """Sends the files of a folder. last: the name of a file to send after all others. skip: of a path relative to the folder."""
        files = (path for path in folder.rglob("*") if path.is_file() and not skip(path.relative_to(folder)))
        for path in sorted(files, key=lambda path: (path.name == last, path)):
            self.send(path, f"{name}/{path.relative_to(folder)}")

    def remove(self, name: str) -> None:
        with self._reaching(name), suppress(FileNotFoundError):
            self._files.rm(f"{self._root}/{name}", recursive=True)

    # ---- fetching ------------------------------------------------------------------------------------------------------

    def fetch(self, name: str, path: Path) -> None:
        """Raises FileNotFoundError: it is not there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._reaching(name):
            self._files.get_file(f"{self._root}/{name}", str(path))

    def fetch_whole(self, name: str, path: Path) -> None:
        """As `fetch`; a kill leaves the old file or the new one."""
        replace_atomically(path, lambda draft: self.fetch(name, draft))

    def fetch_folder(self, name: str, folder: Path) -> None:
        for each in self.names(name):
            self.fetch(each, folder / each.removeprefix(f"{name}/"))

    # ---- inside --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _reaching(self, name: str) -> Iterator[None]:
        """Turns a driver's error into OutOfReach, of one line, except FileNotFoundError."""
        try:
            yield
        except (FileNotFoundError, HeadraceError):
            raise
        except Exception as error:
            raise OutOfReach(f"{self.url}/{name} cannot be reached: {' '.join(str(error).split()) or type(error).__name__}") from error

    def _name(self, path: str) -> str:
        return path.removeprefix(self._root).lstrip("/")
