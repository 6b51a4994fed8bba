"""The options about individual commits, and their parsers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from keyrange.model.commit_settings import CommitSettings, DeliveryLimits, RedeliveryPolicy
from keyrange.model.offsets import topic_name_fault
from keyrange.model.state_scope import StateScope
from keyrange.options.key_ranges import KeyRangeOptions
from keyrange.options.option import BOTH, INT32_MAX, INT64_MAX, option, text_option
from keyrange.options.secrets import Secret, parse_secret
from keyrange.options.value_parsers import (
    NAME_BYTES_MAX,
    boolean,
    duration_ms,
    group_up_to,
    int_between,
    is_one,
    one_of,
    part_of_one,
    path_or_uri,
    size_between,
    takes,
)

STORAGE_PREFIX: Final = "objectstore."
DEAD_LETTERS: Final = "_dead_letters"
# A URI of a store with one slash would be a directory of each process's own.
IS_PATH: Final = re.compile(r"^(/|(file|dbfs):/|[A-Za-z][A-Za-z0-9+.-]*://)")
_ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")
# Delta's libraries take a backslash for a slash, let a path end at ? and #, and have no files with
# the others in their names.
_IN_NO_NAME: Final = re.compile(r"[\\?#\x00-\x1f\x7f]")
# What a pending record takes of a stored state at the most: its offset, place, deliveries, times
# and cause.
PENDING_BYTES_MAX: Final = 40


def storage_in(named: Mapping[str, str]) -> dict[str, str]:
    """The settings of the object store among options of the source, references resolved. Raises
    SECRET_NOT_FOUND."""
    return {
        name[len(STORAGE_PREFIX) :]: parse_secret(value).reveal()
        for name, value in named.items()
        if name.lower().startswith(STORAGE_PREFIX)
    }


def path_mistake(path: str) -> str | None:
    """What is wrong with the place of a table or directory, for driver and executors alike."""
    if not IS_PATH.match(path):
        return "must be an absolute path or a URI"
    if path.startswith("dbfs:"):
        return "must be a path of Databricks' own files such as /Volumes/..., and no dbfs:/ URI"
    if _ESCAPE.search(path):
        return f"must not have {_ESCAPE.findall(path)[0]} in it: Delta takes it for one character"
    if found := _IN_NO_NAME.search(path):
        return f"must not have {found[0]!r} in it: Delta has no files of such names"
    return None


@takes("a topic")
def _topic(value: str) -> str:
    if fault := topic_name_fault(value):
        raise ValueError(f"must be the name of a topic, and {fault}")
    return value


def beside(table: str, suffix: str) -> str:
    """A place of its own for what belongs to a commit table."""
    return table.rstrip("/") + suffix if table else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """How progress is committed; `individual` False stands for whole batches, and the rest for
    nothing then.

    `table` and `dead_letter_table` are paths or URIs of Delta tables, `verdict_directory` of a
    directory that driver and executors share. `storage` are settings of the object store, each a
    secret or a reference to one. Durations are in ms, 0 for none.
    """

    individual: bool = False
    storage: Mapping[str, Secret] = field(default_factory=dict, repr=False)
    policy: RedeliveryPolicy = field(default_factory=RedeliveryPolicy)
    limits: DeliveryLimits = field(default_factory=DeliveryLimits)
    commit_mode: str = option(
        "commitMode",
        one_of("batch", "individual"),
        "What the driver commits. batch: a batch that Spark has finished. individual: the job "
        "reports for every record whether it is done, inside "
        "foreachBatch(keyrange.each_batch(...)), and keyrange delivers the others again. The "
        "columns topic, partition, offset and keyHash are always there then, and in a DataFrame "
        "key, value and timestamp, of which dead letters are made. For streams with "
        "splitBy=keyRange or partition.",
        default="batch",
        modes=BOTH,
        part=True,
    )
    allow_individual: bool | None = option(
        "allow.individual.commit",
        boolean,
        "The same as commitMode: true is individual, false is batch.",
        modes=BOTH,
        part=True,
    )
    table: str = text_option(
        "commitTable",
        path_or_uri,
        "The Delta table of the individual commits. keyrange creates it if it is missing. "
        "objectStore.NAME are settings of the object store for this table and all other files "
        "that keyrange reads and writes, secrets as env:NAME or file:PATH.",
    )
    group: str = text_option(
        "commitGroup",
        group_up_to(NAME_BYTES_MAX),
        "The name of the query in the commit table. Default: kafka.group.id, or else default.",
    )
    on_fresh_start: str = option(
        "commitTable.onFreshStart",
        one_of("fail", "resume", "ignore"),
        "What a query without a checkpoint does if its group has commits already. fail: "
        "keyrange refuses it. resume: it continues from the commits. ignore: it starts at "
        "startingOffsets, so that done records come again, pending ones never, and state is lost.",
        default="fail",
    )
    transactional: bool = option(
        "commit.isolation",
        is_one("transactional", "immediate", "transactional"),
        "When finished output reaches the sink. immediate: with its batch. transactional: when "
        "everything before it in its partition is done.",
        default="immediate",
    )
    keeps_order: bool = option(
        "keyOrder",
        is_one("keep", "keep", "skipAhead"),
        "How keyrange treats later records of a key while an earlier one is not done. keep: "
        "they wait. skipAhead: the job receives them.",
        default="keep",
    )
    unmentioned_is_done: bool = option(
        "unmentioned",
        is_one("done", "done", "retry"),
        "How keyrange treats a record for which the job reports no result. done: it was "
        "filtered out. retry: keyrange delivers it again.",
        default="done",
    )
    record_timeout_ms: int = option(
        "record.timeout",
        duration_ms,
        "How long a function may work on one record before keyrange interrupts it and counts "
        "the record as not done. 0: no limit.",
        default="0",
    )
    batch_time_budget_ms: int = option(
        "batch.time.budget",
        duration_ms,
        "How long a task may work on its records. It hands the rest back, and the next batch "
        "delivers it, so that a slow key does not delay other keys. 0: no limit.",
        default="0",
    )
    backoff_ms: int = option(
        "redelivery.backoff",
        duration_ms,
        "How long a record that is not done waits before it comes again; doubled each time.",
        default="10s",
        part=True,
    )
    backoff_max_ms: int = option(
        "redelivery.backoff.max",
        duration_ms,
        "The longest such wait.",
        default="10m",
        part=True,
    )
    deliveries_max: int = option(
        "maxDeliveries",
        int_between(1, INT32_MAX, "a number of times"),
        "How often keyrange delivers a record before it goes to the dead letters.",
        default="5",
        part=True,
    )
    failure_ratio_max: float | None = option(
        "maxFailureRatio",
        part_of_one,
        "Which share of the records that a batch delivers for the first time may fail. If more "
        "fail, and at least 10, the query stops before anything of the batch is written or "
        "committed. Default: it stops while all records of a run fail, or most of the first ones "
        "by an error of the program; 1 lets all of them fail. Also of whole batches, with "
        "badValues=deadLetter.",
    )
    dead_letter_table: str = text_option(
        "deadLetterTable",
        path_or_uri,
        "The Delta table of the dead letters. Default: commitTable with _dead_letters appended. "
        "Also of whole batches, with badValues=deadLetter.",
        values="as commitTable",
    )
    dead_letter_topic: str = text_option(
        "deadLetterTopic",
        _topic,
        "A topic to which the driver also sends the dead letters, each once for readers with "
        "isolation.level=read_committed.",
    )
    verdict_directory: str = text_option(
        "verdictDirectory",
        path_or_uri,
        "The directory that keeps the output of a batch and the results of its records until "
        "the batch is committed; driver and executors share it. Default: commitTable with "
        "_verdicts appended.",
    )
    state_directory: str = text_option(
        "stateDirectory",
        path_or_uri,
        "The directory that keeps the state of keys of a keyrange.job; driver and executors share "
        "it. Default: commitTable with _state appended.",
    )
    state_retention_ms: int = option(
        "state.retention",
        duration_ms,
        "How long keyrange keeps files of state that the last commit does not need. `keyrange "
        "commits reset` and `keyrange state` can go back that far.",
        default="7d",
    )
    state_topic: str = text_option(
        "state.topic",
        _topic,
        "For topics that are partitioned alike: partitions with the same number share the state of "
        "their keys, which stands in the partitions of this topic. A batch reads the topic's "
        "records first. All topics need the same number of partitions. Default: each partition "
        "has its own state.",
    )
    available_now: str = option(
        "availableNow.redelivery",
        one_of("leave", "drain"),
        "What a run with availableNow does with records that wait for their next delivery, and "
        "with timers that failed. leave: it ends and reports them. drain: it waits for them, up "
        "to availableNow.redelivery.timeout.",
        default="leave",
    )
    available_now_timeout_ms: int = option(
        "availableNow.redelivery.timeout",
        duration_ms,
        "How long in all a run with availableNow waits for them, with drain.",
        default="10m",
    )
    range_pending_max: int = option(
        "max.num.ranges.to.commit",
        int_between(1, 10_000_000, "a number of records"),
        "How many pending records a key range may have. From half of it on the range receives "
        "fewer new records, and at it none; other ranges go on.",
        default="10000",
        part=True,
    )
    range_bytes_max: int = option(
        "max.bytes.ranges.to.commit",
        size_between(1024, 2**30, "1m"),
        "The same bound in bytes of the stored state of a key range, "
        f"{PENDING_BYTES_MAX} a record.",
        default="1m",
    )
    range_lag_max: int | None = option(
        "max.range.lag",
        int_between(1, INT64_MAX, "a number of offsets"),
        "How many offsets a key range may be behind its partition. While it is further behind, "
        "the partition delivers no new records.",
        part=True,
    )

    def revealed_storage(self) -> dict[str, str]:
        """The settings of the object store, secrets among them. Raises SECRET_NOT_FOUND."""
        return {name: value.reveal() for name, value in self.storage.items()}

    @property
    def scope(self) -> StateScope:
        """Which partitions share the state of keys."""
        return StateScope(self.state_topic)

    def terms(self, key_ranges: KeyRangeOptions) -> CommitSettings:
        """What the stored numbers rest on."""
        return CommitSettings(
            null_keys="first" if key_ranges.nulls_first else "spread",
            isolation="transactional" if self.transactional else "immediate",
            state_topic=self.state_topic,
            keys=key_ranges.keys_fingerprint,
        )
