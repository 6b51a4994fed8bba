"""keyrange: a Kafka source for Spark Structured Streaming, in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from keyrange.consumer.api import Consumer
    from keyrange.core.key_ranges import KeyRange
    from keyrange.core.offsets import TopicPartition
    from keyrange.delta.replaying import replay_dead_letters
    from keyrange.members.listener import KeyRangeListener
    from keyrange.spark.commit_frames import commits
    from keyrange.spark.commits.alarm import RecordTimeout
    from keyrange.spark.commits.api import (
        acknowledge,
        materialize,
        process,
        process_into,
        reject,
        transaction,
    )
    from keyrange.spark.commits.each_batch import each_batch
    from keyrange.spark.progress import ProgressListener
    from keyrange.spark.slots import Slot, slot
    from keyrange.spark.source import KeyRangeDataSource

__all__ = [
    "Consumer",
    "KeyRange",
    "KeyRangeDataSource",
    "KeyRangeListener",
    "ProgressListener",
    "RecordTimeout",
    "Slot",
    "TopicPartition",
    "__version__",
    "acknowledge",
    "commits",
    "each_batch",
    "materialize",
    "process",
    "process_into",
    "reject",
    "replay_dead_letters",
    "slot",
    "transaction",
]

# Looked up when asked for, so that the parts that need no Spark work without it.
_PLACES = {
    "Consumer": "keyrange.consumer.api",
    "KeyRange": "keyrange.core.key_ranges",
    "KeyRangeDataSource": "keyrange.spark.source",
    "KeyRangeListener": "keyrange.members.listener",
    "ProgressListener": "keyrange.spark.progress",
    "RecordTimeout": "keyrange.spark.commits.alarm",
    "Slot": "keyrange.spark.slots",
    "TopicPartition": "keyrange.core.offsets",
    "acknowledge": "keyrange.spark.commits.api",
    "commits": "keyrange.spark.commit_frames",
    "each_batch": "keyrange.spark.commits.each_batch",
    "materialize": "keyrange.spark.commits.api",
    "process": "keyrange.spark.commits.api",
    "process_into": "keyrange.spark.commits.api",
    "reject": "keyrange.spark.commits.api",
    "replay_dead_letters": "keyrange.delta.replaying",
    "slot": "keyrange.spark.slots",
    "transaction": "keyrange.spark.commits.api",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    # Imported late: it takes longer than all else here.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("keyrange")
    except PackageNotFoundError:
        return "0"
