"""What keeps the tables and the checkpoint of a run: a directory, or an S3 server."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from platforms.s3_server import BUCKET, S3Server

KINDS: Final = ("files", "s3")


class Store(Protocol):
    """`confs` are Spark's; a process has so many `connections` to it at the most."""

    confs: dict[str, str]
    connections: int

    def uri(self, name: str) -> str:
        """Where delta-rs finds a table."""

    def hadoop_uri(self, name: str) -> str:
        """Where Spark finds it."""

    def seen(self, name: str) -> Path:
        """A directory with the files of a table or a checkpoint, as they are now."""

    def close(self) -> None: ...


class Files:
    """A directory on this machine."""

    connections = 0

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self.confs: dict[str, str] = {}

    def uri(self, name: str) -> str:
        return str(self._lake / name)

    hadoop_uri = uri

    def seen(self, name: str) -> Path:
        return self._lake / name

    def close(self) -> None:
        pass


class Bucket:
    """A bucket of an S3 server, whose files are copied below `lake` to be looked at."""

    # delta-rs opens one for each write, and closes them with a table, which is kept for 50
    # versions: commits, dead letters and members.
    connections = 150

    def __init__(self, lake: Path) -> None:
        from platforms.s3a import confs_of

        self._lake = lake
        self._server = S3Server().__enter__()
        # Of all processes that the run starts, and of what this one reads.
        os.environ.update(self._server.environment)
        self.confs = confs_of(self._server)
        self._faults: dict[str, dict[str, Any]] = {}
        self._copied: dict[str, str] = {}

    def uri(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"

    def hadoop_uri(self, name: str) -> str:
        return f"s3a://{BUCKET}/{name}"

    def seen(self, name: str) -> Path:
        there = self._server.objects(f"{name}/")
        for key, tag in there.items():
            if self._copied.get(key) != tag and not key.endswith("/"):
                self._copy(key, tag)
        gone = [key for key in self._copied if key.startswith(f"{name}/") and key not in there]
        for key in gone:
            del self._copied[key]
            with suppress(FileNotFoundError):
                (self._lake / key).unlink()
        return self._lake / name

    def _copy(self, key: str, tag: str) -> None:
        content = self._server.content(key)
        if content is not None:
            path = self._lake / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            self._copied[key] = tag

    def disturb(self, kind: str, **faults: Any) -> None:
        """From now on, beside what other kinds of fault do."""
        self._faults[kind] = faults
        self._tell()

    def heal(self, kind: str) -> None:
        self._faults.pop(kind, None)
        self._tell()

    def _tell(self) -> None:
        told: dict[str, Any] = {}
        for each in self._faults.values():
            told |= each
        self._server.set_faults(**told)

    def close(self) -> None:
        self._server.__exit__()
