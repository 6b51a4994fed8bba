"""Dead letters to a topic: at least once, with what is known of them in headers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from keyrange.errors import error
from keyrange.individual_commits.table.dead_letters import (
    DeadLetter,
    Letter,
    TimerLetter,
)
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import Answers, ClusterView, Failures
from keyrange.kafka.messages import protocol
from keyrange.kafka.messages.produce import (
    MESSAGE_TOO_LARGE,
    ProducedRecord,
    partition_of,
    produce,
    record_batch,
)
from keyrange.keyed_state.state_handles import instant
from keyrange.model.offsets import TopicPartition
from keyrange.options.kafka_properties import ClientSettings

_log = logging.getLogger(__name__)

# Below what brokers take by default, 1 MiB.
_BATCH_BYTES_MAX: Final = 900_000


def send_dead_letters(settings: ClientSettings, topic: str, letters: Sequence[Letter]) -> None:
    """Write dead letters to a topic, to the partitions that their keys belong to.

    One that is larger than the topic takes is left out, with a line in the log: it is in the table.
    Raises KeyrangeError: UNKNOWN_TOPIC_OR_PARTITION, AUTHORIZATION_FAILED, BROKER_ERROR and what
    a first contact raises.
    """
    cluster = Cluster(settings)
    try:
        view = cluster.describe([topic])
        count = len(view.partitions())
        if not count:
            raise error(
                "UNKNOWN_TOPIC_OR_PARTITION",
                "the topic that deadLetterTopic names is not there",
                topic=topic,
            )
        by_partition: dict[int, list[Letter]] = {}
        for letter in letters:
            by_partition.setdefault(_partition(letter, count), []).append(letter)
        send = partial(_send, cluster, view, topic, settings.request_timeout_ms)
        rounds = {number: list(_batches(each)) for number, each in by_partition.items()}
        for at in range(max(map(len, rounds.values()), default=0)):
            send({number: each[at] for number, each in rounds.items() if at < len(each)})
    finally:
        cluster.close()


def _partition(letter: Letter, count: int) -> int:
    if isinstance(letter, DeadLetter) and letter.key is None:
        return letter.offset % count
    return partition_of(letter.key or b"", count)


def _batches(letters: Iterable[Letter]) -> Iterator[list[ProducedRecord]]:
    records: list[ProducedRecord] = []
    size_bytes = 0
    for record in map(_record, letters):
        if records and size_bytes + record.size_bytes > _BATCH_BYTES_MAX:
            yield records
            records, size_bytes = [], 0
        records.append(record)
        size_bytes += record.size_bytes
    if records:
        yield records


def _record(letter: Letter) -> ProducedRecord:
    """The record that was given up. That of a timer has its key, no value, and says when it was
    due."""
    if isinstance(letter, TimerLetter):
        place = {"timer_at": instant(letter.timer_at_us).isoformat()}
    else:
        place = {"offset": str(letter.offset)}
    said = {
        "topic": letter.topic,
        "partition": str(letter.partition),
        **place,
        "error": letter.error,
        "cause": letter.cause.name.lower(),
        "attempts": str(letter.attempts),
    }
    headers = tuple((f"keyrange.{name}", text.encode()) for name, text in said.items())
    if isinstance(letter, TimerLetter):
        return ProducedRecord(letter.last_at_ms, letter.key, None, headers)
    return ProducedRecord(
        letter.timestamp_ms, letter.key, letter.value, (*letter.headers, *headers)
    )


def _send(
    cluster: Cluster,
    view: ClusterView,
    topic: str,
    timeout_ms: int,
    batches: Mapping[int, Sequence[ProducedRecord]],
) -> None:
    """Send a batch to each partition; what a topic finds too large goes in halves."""
    large = set[int]()

    def request(_: ClusterView, wanted: Mapping[TopicPartition, int]) -> Any:
        made = {each.partition: record_batch(batches[each.partition]) for each in wanted}
        return produce(topic, made, timeout_ms)

    def read(answer: Any, found: Answers) -> Failures:
        failures: Failures = {}
        for each in answer.responses[0].partition_responses:
            partition = TopicPartition(topic, each.index)
            failed = "" if each.error_code in MESSAGE_TOO_LARGE else _failure(topic, each)
            if failed:
                failures[partition] = failed
                continue
            found[partition] = (each.base_offset, -1)
            if each.error_code:
                large.add(each.index)
        return failures

    wanted = {TopicPartition(topic, number): 0 for number in batches}
    cluster.ask_leaders(view, wanted, request, read)
    for number in sorted(large):
        records = batches[number]
        if len(records) == 1:
            _log.error(
                "a dead letter is larger than topic %s takes: it is in the table only", topic
            )
            continue
        middle = len(records) // 2
        for half in (records[:middle], records[middle:]):
            _send(cluster, view, topic, timeout_ms, {number: half})


def _failure(topic: str, answer: Any) -> str:
    """What failed in passing, "" where nothing did; raises what does not pass."""
    code = answer.error_code
    name = protocol.error_name(code)
    if code == protocol.Code.TOPIC_AUTHORIZATION_FAILED:
        raise error("AUTHORIZATION_FAILED", f"not allowed to write to topic {topic}")
    if code and not protocol.is_retriable(code):
        raise error("BROKER_ERROR", f"dead letters for {topic}-{answer.index} failed with {name}")
    return name if code else ""
