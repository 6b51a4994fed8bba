"""A small filesystem for a broker's log directory, and three brokers of which one has it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from brokers.secured_brokers import SecuredCluster, SecuredSettings
from keyrange.embedded.broker import BrokerNode, EmbeddedCluster

VOLUME_MB = 96
KEPT_MB = 40
# The broker with the small volume.
SMALL = 2
MB = 1 << 20


@contextmanager
def small_volume(path: Path, size_mb: int) -> Iterator[None]:
    """A filesystem of so many megabytes at `path`, in memory; skips where none may be mounted."""
    path.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(path)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no filesystem can be mounted here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)


@contextmanager
def three_brokers(directory: Path, **settings: Any) -> Iterator[EmbeddedCluster]:
    """Three brokers that are controllers too; the second has a small volume."""
    properties = {"log.segment.bytes": str(MB)} | settings.pop("properties", {})
    made = SecuredCluster(
        SecuredSettings(nodes=3, heap_mb=256, properties=properties, **settings), directory
    )
    with small_volume(made.nodes[SMALL - 1].log_dir, VOLUME_MB), made:
        yield made


@contextmanager
def joining_broker(
    directory: Path, **settings: Any
) -> Iterator[tuple[EmbeddedCluster, BrokerNode]]:
    """Three brokers, and a fourth one with a small volume that was never started; it is killed."""
    made = SecuredCluster(SecuredSettings(nodes=4, heap_mb=256, **settings), directory)
    fourth = made.nodes.pop()
    with small_volume(fourth.log_dir, VOLUME_MB), made:
        try:
            yield made, fourth
        finally:
            fourth.kill()


class SmallVolume:
    """The volume of a broker, as the filesystem has it."""

    def __init__(self, node: BrokerNode) -> None:
        self._path = node.log_dir
        self._ballast = self._path / "ballast"

    @property
    def usable_bytes(self) -> int:
        found = os.statvfs(self._path)
        return found.f_bavail * found.f_frsize

    def fill(self, left_mb: int) -> None:
        """Take up room beside the broker's logs, as something else on its disk would."""
        with self._ballast.open("wb") as file:
            while self.usable_bytes > left_mb * MB:
                file.write(bytes(64 * 1024))
                file.flush()

    def free(self) -> None:
        """Give back what `fill` took."""
        self._ballast.unlink(missing_ok=True)
