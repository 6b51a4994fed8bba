"""A directory on a local or a remote filesystem, through Arrow's filesystems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

# What Arrow raises: ArrowInvalid is a ValueError; a filesystem that was not built in is the last.
FAILURES: Final = (OSError, ValueError, NotImplementedError)
_CHUNK_BYTES: Final = 1 << 20


class Directory:
    """A directory by its path, or by its URI as Spark writes them. Paths are relative to it."""

    def __init__(self, location: str) -> None:
        from pyarrow import fs

        # Hadoop's names for S3, and its short form of file URIs.
        uri = re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:/(?!/)", "file:///", location))
        self.location = location
        self._made: set[str] = set()
        if "://" in uri:
            self._filesystem, root = fs.FileSystem.from_uri(uri)
            self._root = str(root).rstrip("/")
        else:
            self._filesystem = fs.LocalFileSystem()
            self._root = str(Path(location).expanduser().resolve())

    def is_empty(self) -> bool:
        """Whether there is nothing here, or nothing in it."""
        from pyarrow import fs

        info = self._filesystem.get_file_info(self._root)
        if info.type == fs.FileType.NotFound:
            return True
        if info.type == fs.FileType.File:
            return False
        return not self._filesystem.get_file_info(fs.FileSelector(self._root))

    def holds(self, other: Directory) -> bool:
        """Whether another directory is this one, or lies in it."""
        same = self._filesystem.equals(other._filesystem)
        return same and f"{other._root}/".startswith(f"{self._root}/")

    def files(self) -> list[str]:
        """All files in it, at any depth, in order."""
        from pyarrow import fs

        found = self._filesystem.get_file_info(fs.FileSelector(self._root, recursive=True))
        cut = len(self._root) + 1
        return sorted(each.path[cut:] for each in found if each.type == fs.FileType.File)

    def numbered(self, directory: str) -> list[int]:
        """The files of a directory whose names are numbers."""
        from pyarrow import fs

        selector = fs.FileSelector(f"{self._root}/{directory}", allow_not_found=True)
        names = (each.base_name for each in self._filesystem.get_file_info(selector))
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def read(self, path: str) -> bytes:
        return b"".join(self.chunks(path))

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

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file, and make the directories that it needs."""
        whole = f"{self._root}/{path}"
        parent = whole.rpartition("/")[0]
        if parent not in self._made:
            self._filesystem.create_dir(parent, recursive=True)
            self._made.add(parent)
        with self._filesystem.open_output_stream(whole, compression=None) as stream:
            for chunk in chunks:
                stream.write(chunk)
