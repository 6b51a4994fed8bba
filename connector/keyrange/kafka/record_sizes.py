"""About how many bytes of log a record takes, so that batches and tasks can be planned by size."""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import Broker, ClusterView
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.messages import protocol
from keyrange.kafka.response_frames import ReceiveBuffer
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.wire import fetch_response

if TYPE_CHECKING:
    from keyrange.wire.chunk_decoder import Chunk

_log = logging.getLogger(__name__)

# Of a record batch: its base offset and length; the magic byte behind the leader epoch; the delta
# of its last offset behind checksum and attributes.
_HEADER: Final = struct.Struct(">qi4xb6xi")
_LENGTH_ENDS: Final = 12
_MAGIC: Final = 2


class RecordSizes:
    """About how many bytes of log an offset takes, per partition: sampled where it is read, and
    kept.

    One fetch of some 64 KiB per partition says it; with many partitions only some are sampled and
    the others are taken to be like them. A sample that fails is no failure: a batch is then planned
    by an assumed size. `with_keys` notes too where the keys of the sample lie in the hash space,
    null keys at its beginning with `nulls_first`.
    """

    _SAMPLE_BYTES: Final = 64 * 1024
    _SAMPLES_MAX: Final = 32
    _ASSUMED: Final = 256.0

    def __init__(
        self, cluster: Cluster, with_keys: bool = False, nulls_first: bool = False
    ) -> None:
        self._cluster = cluster
        self._known: dict[TopicPartition, float] = {}
        self._with_keys = with_keys
        self._nulls_first = nulls_first
        self._key_hashes: dict[TopicPartition, list[int]] = {}

    def of(
        self, view: ClusterView, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> dict[TopicPartition, float]:
        """Bytes per offset of every partition in `ranges`."""
        unknown = [partition for partition in ranges if partition not in self._known]
        if unknown and len(self._known) < self._SAMPLES_MAX:
            largest = sorted(unknown, key=lambda partition: -ranges[partition].size)
            self._sample(view, {p: ranges[p] for p in largest[: self._SAMPLES_MAX]})
        usual = float(np.mean(list(self._known.values()))) if self._known else self._ASSUMED
        return {partition: self._known.get(partition, usual) for partition in ranges}

    def key_hashes(self, partition: TopicPartition) -> list[int]:
        """The places of the keys in a partition's sample, a place per record."""
        return self._key_hashes.get(partition, [])

    def forget(self) -> None:
        """Sample anew at the next call: records may have changed."""
        self._known.clear()
        self._key_hashes.clear()

    def _sample(self, view: ClusterView, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
        for leader, partitions in view.by_leader(ranges).items():
            try:
                self._sample_leader(view, leader, partitions, ranges)
            except (ConnectionLost, KeyrangeError) as failure:
                _log.info("no sample of record sizes: %s", failure)

    def _sample_leader(
        self,
        view: ClusterView,
        leader: Broker,
        partitions: list[TopicPartition],
        ranges: Mapping[TopicPartition, OffsetRange],
    ) -> None:
        connection = self._cluster.connection(leader.host, leader.port)
        version = connection.fetch_version()
        wanted: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
        for partition in partitions:
            key = (partition.topic, view.topic_id(partition.topic))
            location = (partition.partition, ranges[partition].from_offset, -1)
            wanted.setdefault(key, []).append(location)
        if not all(topic_id for _, topic_id in wanted):
            version = min(version, fetch_response.VERSION_MAX - 1)
        names = {topic_id: name for name, topic_id in wanted}
        total_bytes = self._SAMPLE_BYTES * len(partitions)
        connection.send(
            protocol.fetch(
                wanted,
                self._SAMPLE_BYTES,
                total_bytes,
                # Without a rack: leaders answer clients of another rack with a hint, not records.
                replace(self._cluster.settings, client_rack=""),
                max_wait_ms=0,
            ),
            version,
        )
        frame = connection.receive(ReceiveBuffer(), 2**31 - 1)
        frame = frame[fetch_response.header_bytes(version) :]
        answer = fetch_response.parse_fetch_response(frame, version)
        for each in answer.partitions:
            topic = names.get(each.topic, each.topic)
            partition = TopicPartition(topic, each.partition)
            if each.error_code or each.records_at == each.records_end or partition not in ranges:
                continue
            data = frame[each.records_at : each.records_end]
            sampled = bytes_per_offset(data)
            if sampled is not None:
                self._known[partition] = max(sampled, 1e-3)
            if self._with_keys:
                # It brings the compiled kernels, which take a second to load.
                from keyrange.wire.chunk_decoder import scan_chunk

                records = np.frombuffer(data, np.uint8)
                chunk = scan_chunk(records, *partition, ranges[partition].from_offset)
                self._key_hashes[partition] = key_hashes(partition, chunk, self._nulls_first)


def bytes_per_offset(records: memoryview) -> float | None:
    """Of whole record batches, by their headers: base offset, length in bytes, and behind epoch,
    magic, checksum and attributes the delta of the last offset. None where there is none, or where
    it is of an older format, which reading refuses."""
    at, first, until = 0, 0, 0
    while at + _HEADER.size <= len(records):
        base, length, magic, last_delta = _HEADER.unpack_from(records, at)
        if magic != _MAGIC or length <= 0 or at + _LENGTH_ENDS + length > len(records):
            break
        first = first if at else base
        until, at = base + last_delta + 1, at + _LENGTH_ENDS + length
    return at / max(until - first, 1) if at else None


def key_hashes(partition: TopicPartition, chunk: Chunk, nulls_first: bool) -> list[int]:
    """Where the keys of a chunk's records lie in the hash space, a place per record."""
    from keyrange.wire.chunk_decoder import Decoder, DecodeSettings
    from keyrange.wire.key_range_selection import Selection

    selection = Selection(nulls_first=nulls_first)
    settings = DecodeSettings(columns=("keyHash",), selection=selection)
    batches = Decoder(*partition, settings).decode(chunk, 0, chunk.next_offset)
    return [key_hash for batch in batches for key_hash in batch.column(0).to_pylist()]
