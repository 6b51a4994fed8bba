"""A directory on this machine or in a store of objects, by obstore.

One set of settings, one write that is done once, and one way to try again: the client of a store
tries what the store throttles, or does not answer. What fails then is an OSError here: by the
system's number where the failure has one, else `StoreFailed`. No bytes that Arrow finds damaged
come as either.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from keyrange.errors import error
from keyrange.storage.locations import as_object_store_names

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from pyarrow import NativeFile

# What a store raises, and what Arrow does of the bytes of a file.
FAILURES: Final = (OSError, ValueError, NotImplementedError)
# A store takes as long to answer a call as it does to send so much.
_WHOLE_BYTES: Final = 1 << 20
# Settings of the client, as obstore names them; all others are of the store.
_OF_CLIENT: Final = re.compile(
    r"(allow_http|allow_invalid_certificates|connect_timeout|default_content_type|http[12]_.*"
    r"|pool_.*|proxy_.*|root_certificate|randomize_addresses|read_timeout|timeout|user_agent)"
)
# Settings by which delta-rs makes up for stores without a conditional put, and obstore has no use.
_OF_DELTA_RS: Final = re.compile(
    r".*(locking_provider|allow_unsafe_rename|dynamo.*|copy_if_not_.*)"
)
_RETRIES: Final = {"max_retries": 10, "retry_timeout": timedelta(seconds=30)}
_SYSTEM_ERROR: Final = re.compile(r"\(os error (\d+)\)")


class StoreFailed(OSError):
    """A store that refused, or did not answer."""


class Entry(NamedTuple):
    """A small file that was read. `tag` changes when the file does."""

    data: bytes
    tag: str


def is_unanswered(failure: BaseException) -> bool:
    """Whether a store or a disk has failed, or refused: of the file itself nothing is known then.
    What Arrow says of the bytes of a file is an OSError without a number."""
    if not isinstance(failure, OSError) or isinstance(failure, FileNotFoundError):
        return False
    return isinstance(failure, StoreFailed) or failure.errno is not None


def let_go(*files: Any) -> None:
    """Close what of a file is open that will not be finished: its writer, then its stream. Whatever
    that raises would hide why the file is not finished: Arrow's writer of Parquet raises a
    RuntimeError when the disk is full."""
    for each in files:
        if each is not None:
            with suppress(Exception):
                each.close()


def no_place(location: str) -> str | None:
    """What keeps a place on this machine from being that of a Delta table: a file, or files that
    VACUUM would remove. None where nothing does, and for other filesystems."""
    scheme, found, rest = location.partition("://")
    if found and scheme != "file":
        return None
    path = Path(rest if found else location)
    there = next((each for each in (path, *path.parents) if each.exists()), None)
    if there is not None and not there.is_dir():
        return f"{there} is a file"
    if there != path or (path / "_delta_log").exists():
        return None
    strangers = (each.name for each in path.iterdir() if each.name[0] not in "_.")
    name = next(strangers, None)
    return None if name is None else f"{name} is in it, which is no table's: VACUUM would remove it"


class Directory:
    """A directory by its path, or by its URI as Spark writes them. Paths are relative to it.
    `settings` of the store are those that delta-rs takes too; a store finds what they leave out in
    the environment. All calls raise OSError."""

    def __init__(self, location: str, settings: Mapping[str, str] | None = None) -> None:
        self.location = location
        uri = as_object_store_names(location).rstrip("/")
        # None in a store of objects.
        self._path: Path | None = None
        if "://" not in uri or uri.startswith("file://"):
            found = Path(uri.removeprefix("file://") or "/").expanduser()
            self._path = found.resolve()
            self._uri = uri
        else:
            self._uri = uri
        self._prefix = f"{self._path}/".lstrip("/") if self._path else ""
        with _told():
            self._store = _open(uri, settings or {}) if self._path is None else _local()

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine, where a call costs next to nothing."""
        return self._path is not None

    def uri(self, path: str) -> str:
        """A file of it, as delta-rs names it."""
        return f"{self._uri}/{path}"

    def is_empty(self) -> bool:
        """Whether there is nothing here, or nothing in it."""
        if self._path is not None and self._path.is_file():
            return False
        directories, files = self._list("")
        return not (directories or files)

    def holds(self, other: Directory) -> bool:
        """Whether another directory is this one, or lies in it."""
        own, others = (str(each._path or each._uri) for each in (self, other))
        return f"{others}/".startswith(f"{own}/")

    def files(self) -> list[str]:
        """All files in it, at any depth, in order."""
        return sorted(self._cut(each) for each in self._all(""))

    def numbered(self, directory: str) -> list[int]:
        """The files of a directory whose names are numbers."""
        names = self.sizes(directory)
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def tag(self, path: str) -> str | None:
        """What changes with a file; None where it is not there."""
        try:
            with _told():
                return _tag(self._store.head(self._prefix + path))
        except FileNotFoundError:
            return None

    def has_file(self, path: str) -> bool:
        """Whether a file is there: one call, where a list of its directory costs like ten."""
        return self.tag(path) is not None

    def size(self, path: str) -> int | None:
        """The bytes of a file; None where it is not there."""
        try:
            with _told():
                return int(self._store.head(self._prefix + path)["size"])
        except FileNotFoundError:
            return None

    def read(self, path: str) -> bytes:
        return self._read(path).data

    def read_if_there(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except FileNotFoundError:
            return None

    def entry(self, path: str) -> Entry | None:
        """A file with its tag; None where it is not there."""
        try:
            return self._read(path)
        except FileNotFoundError:
            return None

    def _read(self, path: str) -> Entry:
        with _told():
            found = self._store.get(self._prefix + path)
            return Entry(bytes(found.bytes()), _tag(found.meta))

    def open(self, path: str) -> NativeFile:
        """A file that can be read in any place; a small one comes with one call."""
        import pyarrow as pa

        if self._path is not None:
            return pa.OSFile(f"{self._path}/{path}")
        with _told():
            found = self._store.get(self._prefix + path)
            size = int(found.meta["size"])
            if size <= _WHOLE_BYTES:
                return pa.BufferReader(pa.py_buffer(found.bytes()))
        return pa.PythonFile(_Ranges(self._store, self._prefix + path, size), mode="r")

    def create(self, path: str) -> NativeFile:
        """A file to be written; it is there when it is closed. A small one goes up with one
        call."""
        import obstore
        import pyarrow as pa

        with _told():
            writer = obstore.open_writer(self._store, self._prefix + path)
        return pa.PythonFile(_Upload(writer), mode="w")

    def write(self, path: str, data: Any) -> None:
        """Write a whole file, over what is there."""
        with _told():
            self._store.put(self._prefix + path, data)

    def write_once(self, path: str, data: bytes) -> str | None:
        """Write a whole file where there is none: its tag, None where another one is there. Of
        several who write at once one wins.

        The same bytes count as written: a store may do what it then answers with an error, and the
        client, which tries again, finds its own file.
        """
        with suppress(FileExistsError), _told():
            return str(self._store.put(self._prefix + path, data, mode="create")["e_tag"])
        there = self._read(path)
        return there.tag if there.data == data else None

    def sizes(self, path: str) -> dict[str, int]:
        """The files of a directory and their bytes; none where it is not there."""
        return {_name(each): each["size"] for each in self._list(path)[1]}

    def directories(self, path: str) -> list[str]:
        """The names of the directories in a directory, in order; none where it is not there."""
        return sorted(each.rpartition("/")[2] for each in self._list(path)[0])

    def remove_older(self, path: str, kept: Collection[str], until_ms: int) -> None:
        """Remove the files of a directory but those that are `kept`, or were written at `until_ms`
        (ms since 1970) or later."""
        _, files = self._list(path)
        old = (each for each in files if each["last_modified"].timestamp() * 1000 < until_ms)
        self.remove_files(self._cut(each) for each in old if _name(each) not in kept)

    def remove_files(self, paths: Iterable[str]) -> None:
        """Remove files, where they are there: S3 takes one call for a thousand."""
        wanted = [self._prefix + path for path in paths]
        try:
            with _told():
                self._store.delete(wanted)
        except FileNotFoundError:
            # Stores that are asked for each of them stop at one that is not there.
            for path in wanted:
                with suppress(FileNotFoundError), _told():
                    self._store.delete(path)

    def remove(self, path: str) -> None:
        """Remove a directory with what is in it, where it is there."""
        if self._path is not None:
            with suppress(FileNotFoundError):
                shutil.rmtree(f"{self._path}/{path}")
        else:
            self.remove_files([self._cut(each) for each in self._all(path)])

    def _cut(self, found: ObjectMeta) -> str:
        return found["path"][len(self._prefix) :]

    def _all(self, path: str) -> list[ObjectMeta]:
        with _told():
            pages = self._store.list(f"{self._prefix}{path}".rstrip("/") or None)
            return [each for page in pages for each in page]

    def _list(self, path: str) -> tuple[list[str], list[ObjectMeta]]:
        """The directories and the files in a directory."""
        with _told():
            prefix = f"{self._prefix}{path}".rstrip("/") or None
            found = self._store.list_with_delimiter(prefix)
            return list(found["common_prefixes"]), list(found["objects"])


class _Ranges:
    """A file of a store for Arrow, which takes ranges of it."""

    def __init__(self, store: Any, path: str, size: int) -> None:
        self._store, self._path, self._size = store, path, size
        self._at = 0
        self.closed = False

    def size(self) -> int:
        return self._size

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        with _told():
            found = bytes(self._store.get_range(self._path, start=self._at, end=end))
        self._at = end
        return found

    def close(self) -> None:
        self.closed = True


class _Upload:
    """A file of a store for Arrow, which writes it from its beginning to its end."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self.closed = False

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:
        with _told():
            return int(self._writer.write(data))

    def flush(self) -> None:
        """Parts go up when they are full."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with _told():
                self._writer.close()


def _open(uri: str, settings: Mapping[str, str]) -> Any:
    """Raises ValueError for a URI of no store, UNKNOWN_STORAGE_SETTING."""
    from obstore.exceptions import BaseError, UnknownConfigurationKeyError
    from obstore.store import from_url

    of_client: dict[str, Any] = {"user_agent": "keyrange"}
    of_store, retries = {}, dict(_RETRIES)
    for name, value in settings.items():
        plain = name.lower()
        short = re.sub(r"^(aws|azure|google)_", "", plain)
        if plain == "max_retries":
            retries[plain] = int(value)
        elif _OF_CLIENT.fullmatch(short):
            of_client[short] = value
        elif not _OF_DELTA_RS.fullmatch(plain):
            of_store[plain] = value
    opened: Any = from_url
    try:
        return opened(uri, config=of_store, client_options=of_client, retry_config=retries)
    except UnknownConfigurationKeyError as failure:
        raise error("INVALID_OPTIONS", f"settings of the store: {text_of(failure)}") from None
    except BaseError as failure:
        raise ValueError(f"{uri}: {text_of(failure)}") from None


def _local() -> Any:
    from obstore.store import LocalStore

    return LocalStore("/")


def _tag(found: ObjectMeta) -> str:
    return str(found["e_tag"])


def _name(found: ObjectMeta) -> str:
    return found["path"].rpartition("/")[2]


def text_of(failure: BaseException) -> str:
    """What obstore says, without its own view of it behind it."""
    return str(failure).partition("\n\nDebug source:")[0]


@contextmanager
def _told() -> Iterator[None]:
    """obstore's failures as OSErrors."""
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        yield
    except FileNotFoundError as failure:
        raise FileNotFoundError(errno.ENOENT, text_of(failure)) from None
    except AlreadyExistsError as failure:
        raise FileExistsError(errno.EEXIST, text_of(failure)) from None
    except BaseError as failure:
        text = text_of(failure)
        number = _SYSTEM_ERROR.search(text)
        if number is not None:
            raise OSError(int(number[1]), text) from None
        raise StoreFailed(text) from None
