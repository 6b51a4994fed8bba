"""A directory on a local or a remote filesystem, through Arrow's filesystems."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from keyrange.storage.locations import as_arrow_names

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileInfo

# What Arrow raises: ArrowInvalid is a ValueError; a filesystem that was not built in is the last.
FAILURES: Final = (OSError, ValueError, NotImplementedError)
_CHUNK_BYTES: Final = 1 << 20
# A store takes as long to answer a call as it does to send so much.
_WHOLE_BYTES: Final = 1 << 20
# As Arrow names them.
_OBJECT_STORES: Final = ("s3", "gcs", "abfs")
# Arrow tries a failed call some ten times, in two seconds, but not a GET whose error answer is
# longer than what it asks for: it has no room for that, and loses what the store said.
_ANSWER_LOST: Final = "Failed to flush response stream"
_STORE_FAILED: Final = "AWS Error"
_WAITS_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)

_T = TypeVar("_T")


def answered(read: Callable[[], _T]) -> _T:
    """What `read` finds; it is called again where Arrow has lost what the store said."""
    for wait_s in _WAITS_S:
        try:
            return read()
        except OSError as failure:
            if _ANSWER_LOST not in str(failure):
                raise
        time.sleep(wait_s)
    return read()


def is_unanswered(failure: BaseException) -> bool:
    """Whether a store or a disk has failed, or refused: of the file itself nothing is known then.
    What Arrow says of the bytes of a file has no number of the system's."""
    if not isinstance(failure, OSError) or isinstance(failure, FileNotFoundError):
        return False
    return failure.errno is not None or _STORE_FAILED in str(failure)


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
    """A directory by its path, or by its URI as Spark writes them. Paths are relative to it."""

    def __init__(self, location: str) -> None:
        from pyarrow import fs

        # Hadoop's names for S3, and its short form of file URIs.
        uri = as_arrow_names(location)
        self.location = location
        self._made: set[str] = set()
        self._uri = uri.rstrip("/")
        if "://" in uri:
            self._filesystem, root = _filesystem_of(uri)
            self._root = str(root).rstrip("/")
        else:
            self._filesystem = fs.LocalFileSystem()
            self._root = str(Path(location).expanduser().resolve())

    @property
    def overwrites(self) -> bool:
        """Whether it is in a store of objects, where `write_once` cannot tell who was first."""
        return self._filesystem.type_name in _OBJECT_STORES

    def uri(self, path: str) -> str:
        """A file of it, as delta-rs names it."""
        return f"{self._uri}/{path}"

    def is_empty(self) -> bool:
        """Whether there is nothing here, or nothing in it."""
        from pyarrow import fs

        info = self._filesystem.get_file_info(self._root)
        if info.type == fs.FileType.NotFound:
            return True
        if info.type == fs.FileType.File:
            return False
        return not self._filesystem.get_file_info(fs.FileSelector(self._root))

    def missing_bucket(self) -> str | None:
        """The bucket that it would lie in, where there is none of that name. None elsewhere, and
        where the store does not say."""
        from pyarrow import fs

        bucket = self._root.partition("/")[0]
        with suppress(*FAILURES):
            if self.overwrites:
                found = self._filesystem.get_file_info(bucket).type
                return bucket if found == fs.FileType.NotFound else None
        return None

    def holds(self, other: Directory) -> bool:
        """Whether another directory is this one, or lies in it."""
        same = self._filesystem.equals(other._filesystem)
        return same and f"{other._root}/".startswith(f"{self._root}/")

    def files(self) -> list[str]:
        """All files in it, at any depth, in order."""
        from pyarrow import fs

        found = self._filesystem.get_file_info(fs.FileSelector(self._root, recursive=True))
        cut = len(self._root) + 1
        return sorted(each.path[cut:] for each in found if each.is_file)

    def numbered(self, directory: str) -> list[int]:
        """The files of a directory whose names are numbers."""
        names = (each.base_name for each in self._entries(directory))
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def has_file(self, path: str) -> bool:
        """Whether a file is there: one call, where a list of its directory costs like ten."""
        return bool(self._filesystem.get_file_info(f"{self._root}/{path}").is_file)

    def read(self, path: str) -> bytes:
        return answered(lambda: b"".join(self.chunks(path)))

    def read_if_there(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except FileNotFoundError:
            return None

    def chunks(self, path: str) -> Iterator[bytes]:
        # Arrow would take .lz4 and the like for compressed files, and unpack them.
        with self._filesystem.open_input_stream(f"{self._root}/{path}", compression=None) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield bytes(chunk)

    def open(self, path: str) -> NativeFile:
        """A file that can be read in any place. What is read of it is to be `answered`."""
        import pyarrow as pa

        file = self._filesystem.open_input_file(f"{self._root}/{path}")
        if not self.overwrites or file.size() > _WHOLE_BYTES:
            return file
        # One call in the place of one for each range, and none that is too short to be tried again.
        with file:
            return pa.BufferReader(answered(file.read_buffer))

    def create(self, path: str) -> NativeFile:
        """A file to be written; the directories that it needs are made."""
        # In a store of objects there are none, and to make one needs more rights than a file does.
        if not self.overwrites:
            self._make_parent(path)
        return self._filesystem.open_output_stream(f"{self._root}/{path}", compression=None)

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file, and make the directories that it needs."""
        with self.create(path) as stream:
            for chunk in chunks:
                stream.write(chunk)

    def _make_parent(self, path: str) -> None:
        parent = f"{self._root}/{path}".rpartition("/")[0]
        if parent not in self._made:
            self._filesystem.create_dir(parent, recursive=True)
            self._made.add(parent)

    def directories(self, path: str) -> list[str]:
        """The names of the directories in a directory, in order; none where it is not there."""
        from pyarrow import fs

        found = self._entries(path)
        return sorted(each.base_name for each in found if each.type == fs.FileType.Directory)

    def sizes(self, path: str) -> dict[str, int]:
        """The files of a directory and their bytes; none where it is not there."""
        return {each.base_name: each.size for each in self._entries(path) if each.is_file}

    def _entries(self, path: str) -> list[FileInfo]:
        """What is in a directory; nothing where it is not there."""
        from pyarrow import fs

        selector = fs.FileSelector(f"{self._root}/{path}".rstrip("/"), allow_not_found=True)
        found: list[FileInfo] = self._filesystem.get_file_info(selector)
        return found

    def write_once(self, path: str, data: bytes) -> bool:
        """Write a whole file where there is none; whether it was this call that wrote it.

        Of several who write at once one wins on a local filesystem. Elsewhere the last one does:
        see `overwrites`.
        """
        from pyarrow import fs

        if self.has_file(path):
            return False
        if not isinstance(self._filesystem, fs.LocalFileSystem):
            self.write(path, [data])
            return True
        return _link_once(Path(f"{self._root}/{path}"), data)

    def remove_files(self, path: str, kept: Collection[str], until_ms: int) -> None:
        """Remove the files of a directory but those that are `kept`, or were written at `until_ms`
        (ms since 1970) or later."""
        for each in self._entries(path):
            is_old = each.is_file and each.mtime_ns < until_ms * 1_000_000
            if is_old and each.base_name not in kept:
                self._filesystem.delete_file(each.path)

    def remove_file(self, path: str) -> None:
        """Remove a file, where it is there."""
        with suppress(FileNotFoundError):
            self._filesystem.delete_file(f"{self._root}/{path}")

    def remove(self, path: str) -> None:
        """Remove a directory with what is in it, where it is there."""
        with suppress(FileNotFoundError):
            self._filesystem.delete_dir(f"{self._root}/{path}")


def _filesystem_of(uri: str) -> tuple[Any, Any]:
    """Arrow's filesystem of a URI, and the path in it."""
    from pyarrow import fs

    if uri.startswith("s3://"):
        # A small file goes up with one call, not with the three of an upload in parts. An Arrow
        # that does not know that refuses it.
        more = "&" if "?" in uri else "?"
        with suppress(ValueError):
            filesystem, path = fs.FileSystem.from_uri(f"{uri}{more}allow_delayed_open=true")
            return filesystem, path
    filesystem, path = fs.FileSystem.from_uri(uri)
    return filesystem, path


def _link_once(whole: Path, data: bytes) -> bool:
    """A file that is there with all its bytes, or not at all."""
    whole.parent.mkdir(parents=True, exist_ok=True)
    draft = whole.with_name(f".{whole.name}.{uuid.uuid4().hex}")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, whole)
        except FileExistsError:
            return False
        return True
    finally:
        draft.unlink(missing_ok=True)
