"""A directory on this machine or in a store of objects: paths in, bytes and Arrow's files out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from keyrange.storage.locations import as_object_store_names
from keyrange.storage.object_store import Ranges, Upload, open_store, told

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from pyarrow import NativeFile

# A store takes as long to answer a call as it does to send so much.
_WHOLE_BYTES: Final = 1 << 20
# So many files a list tells of at a time, and S3 removes by one call.
_PAGE: Final = 1_000
_READERS: Final = 8
_File = TypeVar("_File")
_Found = TypeVar("_Found")


class Entry(NamedTuple):
    """A small file that was read. `tag` changes when the file does."""

    data: bytes
    tag: str


def no_place(location: str) -> str | None:
    """What keeps a place on this machine from being that of a Delta table: a file, or files that
    VACUUM would remove. None where nothing does, and for other filesystems."""
    place = as_object_store_names(location)
    if "://" in place:
        return None
    path = Path(place)
    there = next((each for each in (path, *path.parents) if each.exists()), None)
    if there is not None and not there.is_dir():
        return f"{there} is a file"
    if there != path or (path / "_delta_log").exists():
        return None
    strangers = (each.name for each in path.iterdir() if each.name[0] not in "_.")
    name = next(strangers, None)
    return None if name is None else f"{name} is in it, which is no table's: VACUUM would remove it"


def file_at(location: str, settings: Mapping[str, str]) -> tuple[Directory, str]:
    """A file by its path or URI: its directory, and its name there. Raises ValueError for a URI of
    no store, INVALID_OPTIONS."""
    home, slash, name = location.rpartition("/")
    return Directory(f"{home}{slash}" or ".", settings), name


class Directory:
    """A directory by its path, or by its URI as Spark writes them. Paths are relative to it.
    `settings` of the store are those that delta-rs takes too; a store finds what they leave out in
    the environment. All calls raise OSError."""

    def __init__(self, location: str, settings: Mapping[str, str] | None = None) -> None:
        from obstore.store import LocalStore

        self.location = location
        self._settings = dict(settings or {})
        self._uri = uri = as_object_store_names(location).rstrip("/")
        # None in a store of objects.
        self._path: Path | None = None
        if "://" not in uri:
            self._path = Path(uri or "/").expanduser().resolve()
        self._prefix = f"{self._path}/".lstrip("/") if self._path else ""
        self._store: Any = LocalStore("/") if self._path else open_store(uri, self._settings)

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine, where a call costs next to nothing."""
        return self._path is not None

    def of_each(self, read: Callable[[_File], _Found], files: Sequence[_File]) -> Iterator[_Found]:
        """What some calls find, one after the other; in a store, which takes its time for each,
        several go on at a time."""
        if self.is_local or len(files) <= 1:
            yield from map(read, files)
        else:
            with ThreadPoolExecutor(min(len(files), _READERS)) as readers:
                yield from readers.map(read, files)

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
        with told(self._settings):
            pages = self._store.list(self._prefix.rstrip("/") or None)
            found = [each for page in pages for each in page]
        return sorted(map(self._cut, filter(self._is_file, found)))

    def numbered(self, directory: str) -> list[int]:
        """The files of a directory whose names are numbers."""
        names = self.sizes(directory)
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def tag(self, path: str) -> str | None:
        """What changes with a file; None where it is not there."""
        found = self._head(path)
        return None if found is None else _tag(found)

    def size(self, path: str) -> int | None:
        """The bytes of a file; None where it is not there: one call, where a list of its directory
        costs like ten."""
        found = self._head(path)
        return None if found is None else found["size"]

    def written_at_s(self, path: str) -> float | None:
        """When a file was written by the store's clock, in seconds since 1970; None where it is not
        there."""
        found = self._head(path)
        return None if found is None else found["last_modified"].timestamp()

    def _head(self, path: str) -> ObjectMeta | None:
        try:
            with told(self._settings):
                found: ObjectMeta = self._store.head(self._prefix + path)
                return found
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
        with told(self._settings):
            found = self._store.get(self._prefix + path)
            return Entry(bytes(found.bytes()), _tag(found.meta))

    def open(self, path: str) -> NativeFile:
        """A file that can be read in any place; a small one comes with one call."""
        import pyarrow as pa

        if self._path is not None:
            return pa.OSFile(f"{self._path}/{path}")
        with told(self._settings):
            found = self._store.get(self._prefix + path)
            size = int(found.meta["size"])
            if size <= _WHOLE_BYTES:
                return pa.BufferReader(pa.py_buffer(found.bytes()))
        return pa.PythonFile(
            Ranges(self._store, self._prefix + path, size, self._settings), mode="r"
        )

    def create(self, path: str) -> NativeFile:
        """A file to be written, which is whole when it is closed. A small one goes up with one
        call."""
        import pyarrow as pa

        if self._path is not None:
            # Arrow hands its buffers to the system: by obstore they would be copied twice.
            place = self._path / path
            place.parent.mkdir(parents=True, exist_ok=True)
            return pa.OSFile(str(place), "w")
        import obstore

        with told(self._settings):
            writer = obstore.open_writer(self._store, self._prefix + path)
        return pa.PythonFile(Upload(writer, self._settings), mode="w")

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file, over what is there."""
        with told(self._settings):
            self._store.put(self._prefix + path, data)

    def write_once(self, path: str, data: bytes) -> str | None:
        """Write a whole file where there is none: its tag, None where another one is there. Of
        several who write at once one wins.

        The same bytes count as written: a store may do what it then answers with an error, and the
        client, which tries again, finds its own file.
        """
        with suppress(FileExistsError), told(self._settings):
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
        (ms since 1970) or later. There may be millions: a page of them is in memory at a time."""
        prefix = f"{self._prefix}{path}".rstrip("/") or None
        with told(self._settings):
            for page in self._store.list(prefix, chunk_size=_PAGE):
                old = (e for e in page if e["last_modified"].timestamp() * 1000 < until_ms)
                own = (e for e in old if e["path"] == f"{prefix or ''}/{_name(e)}".lstrip("/"))
                files = filter(self._is_file, (e for e in own if _name(e) not in kept))
                self.remove_files(map(self._cut, files))

    def remove_files(self, paths: Iterable[str]) -> None:
        """Remove files, where they are there: S3 takes one call for a thousand."""
        wanted = [self._prefix + path for path in paths]
        try:
            with told(self._settings):
                self._store.delete(wanted)
        except FileNotFoundError:
            # Stores that are asked for each of them stop at one that is not there.
            for path in wanted:
                with suppress(FileNotFoundError), told(self._settings):
                    self._store.delete(path)

    def remove(self, names: Collection[str]) -> None:
        """Remove directories of this one with what is in them, where they are there. In a store of
        objects one list finds the files of all of them."""
        if self._path is None:
            of_all = self.files() if names else ()
            self.remove_files(each for each in of_all if each.partition("/")[0] in names)
            return
        for name in names:
            with suppress(FileNotFoundError):
                shutil.rmtree(f"{self._path}/{name}")

    def _cut(self, found: ObjectMeta) -> str:
        return found["path"][len(self._prefix) :]

    def _list(self, path: str) -> tuple[list[str], list[ObjectMeta]]:
        """The directories and the files in a directory."""
        with told(self._settings):
            prefix = f"{self._prefix}{path}".rstrip("/") or None
            found = self._store.list_with_delimiter(prefix)
        return list(found["common_prefixes"]), list(filter(self._is_file, found["objects"]))

    def _is_file(self, found: ObjectMeta) -> bool:
        """Hadoop, and who makes a folder in a console, write an empty object for a directory. Its
        name ends with a slash, and a list has it without."""
        if found["size"] or self._path is not None:
            return True
        name = self._cut(found)
        return bool(name) and self._head(name) is not None


def _tag(found: ObjectMeta) -> str:
    return str(found["e_tag"])


def _name(found: ObjectMeta) -> str:
    return found["path"].rpartition("/")[2]
