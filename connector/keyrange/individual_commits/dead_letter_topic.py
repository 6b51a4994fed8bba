"""Dead letters to a topic, each once for readers of committed records, with what is known of them
in headers.

The dead letter table says what is to be sent: letters are there first, then a sender's transaction
has all of a batch, and then the batch counts as done. So whoever finds letters of a batch that is
not done asks Kafka by the sender's mark whether they are out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from keyrange.individual_commits.table.dead_letters import Letter, Subject, TimerLetter
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.model.sender_messages import Batch
from keyrange.kafka.topic_settings import topic_settings
from keyrange.keyed_state.state_handles import instant
from keyrange.model.offsets import TopicPartition
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.producer_properties import ProducerSettings
from keyrange.sending.model.marks import LETTERS, Mark
from keyrange.sending.open_senders import OpenSenders, number_of
from keyrange.sending.shard_sender import Share
from keyrange.sending.topic_address import TopicAddress
from keyrange.storage.model.sink_driver import Driver, application_of
from keyrange.wire.produced_batches import RecordWriter
from keyrange.wire.produced_faults import fault_of

_log = logging.getLogger(__name__)

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_COLUMNS: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(_HEADER)),
        ("timestamp", pa.timestamp("ms", "UTC")),
    ]
)


class DeadLetterTopic:
    """The topic for the dead letters of a query, on the cluster that it reads."""

    def __init__(self, client: ClientSettings, topic: str) -> None:
        self._address = TopicAddress(topic, topic, client, ProducerSettings())
        self._senders = OpenSenders(self._address)
        # The marks of applications whose drivers were stopped.
        self._taken_over: dict[str, Mark] = {}

    def stop_others(self, driver: Driver) -> None:
        """Let nothing more come from the drivers that one has stopped."""
        for application in driver.applications:
            self._take_over(application, driver)

    def send(
        self,
        application: str,
        batch_id: int,
        letters: Sequence[Letter],
        stood: Mapping[Subject, Letter],
        driver: Driver | None,
    ) -> None:
        """The letters of a batch, which are in the table, in one transaction, once.

        `stood`: letters that stand for the same records and timers, of batches that were not
        committed. What those of another application have sent is not sent again. One that the topic
        does not take is left out, with a line in the log: it is in the table.

        Raises COMMITS_FENCED, CHECKPOINT_BEHIND, and as `TransactionalProducer` and a first contact
        do.
        """
        wanted = [
            each
            for each in letters
            if driver is None or not self._is_out(stood.get(each.subject), application, driver)
        ]
        if not wanted:
            return
        mark = Mark(batch_id, number_of(driver))
        # A mark that Kafka has forgotten would let a query stand still for good: rather twice.
        share = Share(application, LETTERS, 0, self._batches(wanted), mark, "send", is_made=True)
        self._senders.send(share)

    def _is_out(self, letter: Letter | None, own: str, driver: Driver) -> bool:
        """Whether a driver that was stopped has sent a letter."""
        if letter is None:
            return False
        application = application_of(letter.query_id, letter.source_id)
        if application == own:
            # Of these its sender knows.
            return False
        if application not in self._taken_over:
            self._take_over(application, driver)
        return self._taken_over[application].is_out(letter.batch_id)

    def _take_over(self, application: str, driver: Driver) -> None:
        [mark] = self._senders.taken_over(application, LETTERS, driver)
        self._taken_over[application] = mark

    def _batches(self, letters: Sequence[Letter]) -> list[Batch]:
        topic, now_ms = self._address.topic, time.time_ns() // 1_000_000
        with closing(Cluster(self._address.client)) as cluster:
            partitions = len(cluster.topic(topic).leaders)
            takes = topic_settings(cluster, topic)
        # What the topic takes, which may be more than producers send by default.
        most = max(takes.message_bytes, self._address.producer.request_bytes)
        address = replace(self._address, producer=ProducerSettings(request_bytes=most))
        limits = address.limits(takes, partitions)
        rows = pa.RecordBatch.from_pylist(list(map(_record, letters)), _COLUMNS)
        kept = []
        for at in range(rows.num_rows):
            if (fault := fault_of(limits, rows.slice(at, 1), now_ms)) is None:
                kept.append(at)
            else:
                _log.error(
                    "a dead letter is in the table only, since topic %s does not take it: %s",
                    *(topic, fault),
                )
        writer = RecordWriter(topic, partitions, limits.batches)
        return [
            Batch(TopicPartition(topic, each.partition), len(each.rows), len(each.data), each.data)
            for each in writer.write(rows.take(pa.array(kept, pa.int64())), now_ms)
        ]


def _record(letter: Letter) -> dict[str, Any]:
    """The record that was given up. That of a timer has its key, no value, and says when it was
    due."""
    own: dict[str, Any] = {"key": letter.key}
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if isinstance(letter, TimerLetter):
        place, time_ms = {"timer_at": instant(letter.timer_at_us).isoformat()}, letter.last_at_ms
    else:
        place, time_ms = {"offset": str(letter.offset)}, letter.timestamp_ms
        own["value"], headers = letter.value, letter.headers
    said = {
        "topic": letter.topic,
        "partition": str(letter.partition),
        **place,
        "error": letter.error,
        "cause": letter.cause.name.lower(),
        "attempts": str(letter.attempts),
    }
    told = [(f"keyrange.{name}", text.encode()) for name, text in said.items()]
    own["headers"] = [{"key": name, "value": value} for name, value in (*headers, *told)]
    # A record of the first message formats has no time, which is -1.
    return own | {"timestamp": max(time_ms, 0)}
