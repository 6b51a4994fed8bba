"""The volume guard: it holds back before the disks of a Kafka cluster run full.

For jobs that write to the cluster whose volumes are watched:

    from keyrange.volumes import admit

    admit({"kafka.admin.bootstrap.servers": "b:9092", "min.available.ratio": "0.1"})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keyrange.guard.metrics import VolumeCollector
    from keyrange.guard.sink_admission import admit

__all__ = ["VolumeCollector", "admit"]


def __getattr__(name: str) -> Any:
    # Looked up when asked for: what checks options imports nothing of the cluster.
    from importlib import import_module

    places = {"admit": "sink_admission", "VolumeCollector": "metrics"}
    if name in places:
        return getattr(import_module(f"keyrange.guard.{places[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
