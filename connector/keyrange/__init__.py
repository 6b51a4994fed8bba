"""keyrange: a Kafka source for Spark Structured Streaming, in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from keyrange import windows
    from keyrange.consumer.api import Consumer
    from keyrange.individual_commits.api import (
        acknowledge,
        materialize,
        process,
        reject,
        transaction,
    )
    from keyrange.individual_commits.each_batch import each_batch
    from keyrange.individual_commits.table.commit_frames import commits
    from keyrange.individual_commits.table.dead_letter_replay import replay_dead_letters
    from keyrange.individual_commits.table.keyed_state_frames import state
    from keyrange.jobs.api import job
    from keyrange.jobs.state_reader import state_reader
    from keyrange.jobs.topic import Topic
    from keyrange.jobs.topic_writer import topic_writer
    from keyrange.keyed_state.variables import ListState, MapState, ValueState
    from keyrange.members.range_listener import KeyRangeListener
    from keyrange.members.slot_directories import Slot, slot
    from keyrange.model.key_ranges import KeyRange
    from keyrange.model.offsets import TopicPartition
    from keyrange.observing.listener import ProgressListener
    from keyrange.observing.short_errors import short_errors
    from keyrange.source.data_source import register
    from keyrange.windowing.whole_records import deduplicate, last
    from keyrange.work.job_time import EventTime, ProcessingTime
    from keyrange.work.record_alarm import RecordTimeout

__all__ = [
    "Consumer",
    "EventTime",
    "KeyRange",
    "KeyRangeListener",
    "ListState",
    "MapState",
    "ProcessingTime",
    "ProgressListener",
    "RecordTimeout",
    "Slot",
    "Topic",
    "TopicPartition",
    "ValueState",
    "__version__",
    "acknowledge",
    "commits",
    "deduplicate",
    "each_batch",
    "job",
    "last",
    "materialize",
    "process",
    "register",
    "reject",
    "replay_dead_letters",
    "short_errors",
    "slot",
    "state",
    "state_reader",
    "topic_writer",
    "transaction",
    "windows",
]

# Looked up when asked for, so that the parts that need no Spark work without it.
_PLACES = {
    "Consumer": "keyrange.consumer.api",
    "EventTime": "keyrange.work.job_time",
    "KeyRange": "keyrange.model.key_ranges",
    "KeyRangeListener": "keyrange.members.range_listener",
    "ListState": "keyrange.keyed_state.variables",
    "MapState": "keyrange.keyed_state.variables",
    "ProcessingTime": "keyrange.work.job_time",
    "ProgressListener": "keyrange.observing.listener",
    "RecordTimeout": "keyrange.work.record_alarm",
    "Slot": "keyrange.members.slot_directories",
    "Topic": "keyrange.jobs.topic",
    "TopicPartition": "keyrange.model.offsets",
    "ValueState": "keyrange.keyed_state.variables",
    "acknowledge": "keyrange.individual_commits.api",
    "commits": "keyrange.individual_commits.table.commit_frames",
    "deduplicate": "keyrange.windowing.whole_records",
    "each_batch": "keyrange.individual_commits.each_batch",
    "job": "keyrange.jobs.api",
    "last": "keyrange.windowing.whole_records",
    "materialize": "keyrange.individual_commits.api",
    "process": "keyrange.individual_commits.api",
    "register": "keyrange.source.data_source",
    "reject": "keyrange.individual_commits.api",
    "replay_dead_letters": "keyrange.individual_commits.table.dead_letter_replay",
    "short_errors": "keyrange.observing.short_errors",
    "slot": "keyrange.members.slot_directories",
    "state": "keyrange.individual_commits.table.keyed_state_frames",
    "state_reader": "keyrange.jobs.state_reader",
    "topic_writer": "keyrange.jobs.topic_writer",
    "transaction": "keyrange.individual_commits.api",
}

_INSTALLED = ".dist-info"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # Kept: each task compares it with the driver's.
        globals()["__version__"] = _version()
        return globals()["__version__"]
    if name == "windows":
        return import_module("keyrange.windows")
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    import os

    # Beside the package first, by the name that pip gives: what reads it takes longer to import
    # than all else here, and has an archive to look through in Spark's workers.
    home = __file__.rpartition("/keyrange/")[0]
    names = os.listdir(home) if os.path.isdir(home) else ()
    beside = [name for name in names if name.startswith("keyrange-") and name.endswith(_INSTALLED)]
    if len(beside) == 1:
        return beside[0][len("keyrange-") : -len(_INSTALLED)]
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("keyrange")
    except PackageNotFoundError:
        return "0"
