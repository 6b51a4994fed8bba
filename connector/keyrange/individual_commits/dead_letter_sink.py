"""Records that were given up, whichever way the query commits: where they are written, what a
letter says, and those of a batch that is done as a whole.

Table and topic are written before what counts a batch as done, so that no record is passed over
without its letter.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from keyrange.errors import error
from keyrange.individual_commits import last_batch_results
from keyrange.individual_commits.batch_failure_limit import NO_RECORDS, Worked, check_failures
from keyrange.individual_commits.batch_in_checkpoint import Planned
from keyrange.individual_commits.model.batch_results import (
    BatchResult,
    failure_kinds,
    kinds_text,
)
from keyrange.individual_commits.model.verdict_manifest import Manifest
from keyrange.individual_commits.verdict_files import Wanted
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.model.offsets import TopicPartition
from keyrange.options import SourceOptions
from keyrange.options.commits import CommitOptions
from keyrange.storage.model.sink_driver import Driver
from keyrange.text.escaping import one_line
from keyrange.work.model.outcome import Cause

if TYPE_CHECKING:
    from keyrange.individual_commits.dead_letter_topic import DeadLetterTopic
    from keyrange.individual_commits.table.dead_letters import (
        DeadLetter,
        DeadLetters,
        Letter,
        Subject,
    )

# What is asked of a verdict; a whole batch has no deliveries that say why a record was given up.
OUTCOME: Final = ("topic", "partition", "offset", "error", "frames", "record")
_OF_WHOLE_BATCHES: Final[Wanted] = {"outcome": (*OUTCOME, "cause")}
_TERM: Final = "deadLetterTable"
Record = Mapping[str, Any]

_log = logging.getLogger(__name__)


class DeadLetterSink:
    """The dead letter table, and the topic where one is named. Opened when something is dead."""

    def __init__(self) -> None:
        self._table: DeadLetters | None = None
        self._topic: DeadLetterTopic | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_table": None, "_topic": None}

    def table(self, options: CommitOptions) -> DeadLetters:
        if self._table is None:
            from keyrange.individual_commits.table.dead_letters import open_dead_letters

            self._table = open_dead_letters(options)
        return self._table

    def topic(self, options: SourceOptions) -> DeadLetterTopic | None:
        """None where none is named."""
        name = options.commits.dead_letter_topic
        if self._topic is None and name:
            from keyrange.individual_commits.dead_letter_topic import DeadLetterTopic

            self._topic = DeadLetterTopic(options.client, name)
        return self._topic

    def stop_others(self, options: SourceOptions, driver: Driver) -> None:
        if driver.applications and (topic := self.topic(options)) is not None:
            topic.stop_others(driver)

    def send(
        self,
        options: SourceOptions,
        at: Planned,
        letters: Sequence[Letter],
        stood: Mapping[Subject, Letter] = MappingProxyType({}),
        driver: Driver | None = None,
    ) -> None:
        """What is in the table to the topic, as `DeadLetterTopic.send`."""
        if letters and (topic := self.topic(options)) is not None:
            topic.send(at.application, at.batch_id, letters, stood, driver)

    def maintain(self) -> None:
        if self._table is not None:
            self._table.maintain()


def letter_of(
    at: Planned,
    source_id: str,
    group: str,
    place: tuple[TopicPartition, int],
    record: Record,
    **why: Any,
) -> DeadLetter:
    """The letter of the record at `place`, of the source's part of a batch. `why`: the fields of
    the letter that say why it was given up, and when."""
    from keyrange.individual_commits.table.dead_letters import DeadLetter

    partition, offset = place
    return DeadLetter(
        group=group,
        source_id=source_id,
        query_id=at.query_id,
        batch_id=at.batch_id,
        topic=partition.topic,
        topic_id=at.end.topic_ids.get(partition.topic, ""),
        partition=partition.partition,
        offset=offset,
        key=_bytes(record.get("key")),
        value=_bytes(record.get("value")),
        headers=tuple((each["key"], _bytes(each["value"])) for each in record.get("headers") or ()),
        timestamp_ms=record.get("timestamp_ms") or 0,
        **why,
    )


class LettersOfWholeBatches:
    """The dead letters of a job that commits whole batches. A batch's are those that its manifest
    has, so they are the same ones however often the batch runs."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._sink = DeadLetterSink()
        self._is_on = options.values.bad == "deadLetter"
        # What the batches of this run came to.
        self._before = NO_RECORDS

    def begin(self) -> None:
        """Another run of the query."""
        self._before = NO_RECORDS

    @property
    def terms(self) -> dict[str, str]:
        """What a manifest is to say of them."""
        return {_TERM: self._options.commits.dead_letter_table} if self._is_on else {}

    def check(self, store: VerdictStore, made: Manifest) -> None:
        """Of a manifest that is not kept yet. Raises TOO_MANY_FAILURES, as of individual commits:
        where no record of a run can be read, the schema is at fault, and not they."""
        if not self._is_on:
            return
        failures = store.failures_in(made)
        batch = Worked(len(failures), made.done, made.tombstones)
        most = self._options.commits.failure_ratio_max
        check_failures(made.batch_id, most, batch, self._before, lambda: failures)
        self._before += batch

    def write(self, store: VerdictStore, manifest: Manifest, at: Planned) -> list[DeadLetter]:
        """Those of a manifest to table and topic, each once, before the batch's output counts.
        Raises BATCH_UNFINISHED where the run that made the manifest named another table, and as
        `VerdictStore`, `DeadLetters` and `DeadLetterTopic`."""
        if not (manifest.files or manifest.inline):
            return []
        was, is_now = (each.get(_TERM, "") for each in (manifest.terms, self.terms))
        if was != is_now:
            raise error(
                "BATCH_UNFINISHED",
                f"the dead letters of a batch that is not finished go to table {was}, and options "
                f"badValues and {_TERM} name {f'table {is_now}' if is_now else 'none'}",
                batch=at.batch_id,
            )
        now_ms = time.time_ns() // 1_000_000
        letters = [
            letter_of(
                at,
                at.end.source_id,
                self._options.commits.group,
                (TopicPartition(topic, number), offset),
                record,
                error=text,
                frames=tuple(frames or ()),
                cause=Cause(cause),
                attempts=1,
                first_at_ms=now_ms,
                last_at_ms=now_ms,
            )
            for topic, number, offset, text, frames, record, cause in store.rows_in(
                manifest, _OF_WHOLE_BATCHES
            )["outcome"]
        ]
        table = self._sink.table(self._options.commits)
        table.append(at.end.source_id, at.batch_id, letters, now_ms)
        self._sink.send(self._options, at, letters)
        _log.warning(
            "batch %d: %s records cannot be read and are dead letters: %s",
            at.batch_id,
            f"{len(letters):,}",
            one_line(kinds_text(failure_kinds(store.failures_in(manifest)))),
        )
        return letters

    def finish(self, letters: Sequence[DeadLetter], manifest: Manifest, at: Planned) -> None:
        """When the batch's output is written, listeners are told."""
        if self._is_on:
            dead = len(letters)
            result = BatchResult(manifest.done, dead, held_back=0, dead=dead, pending=0)
            last_batch_results.keep(at.query_id, at.batch_id, result)
        self._sink.maintain()


def _bytes(value: Any) -> bytes | None:
    """A column as it came from Kafka, or as text that the query has made of it. What it has made
    into anything else is not the record's any more."""
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, (bytes, bytearray)) else None
