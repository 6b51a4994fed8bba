"""Read splits: fetch chunk after chunk from the leaders, and decode them to Arrow batches.

The request for the next chunk leaves before the present chunk is decoded, so that broker and
network work meanwhile; across the border of two splits too. One receive buffer is used for all
chunks: the next answer waits in the kernel until the present chunk has been handed over.

What passes by itself is tried again for as long as `poll_timeout_ms` brings no progress.
`data_loss` decides about records that are gone.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.fetching.cursor import Cursor, InFlight, may_join, take_back
from keyrange.kafka.fetching.data_loss import LostRecords
from keyrange.kafka.fetching.fetch_request import receive_fetch, send_fetch, wait_throttled
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.kafka.messages import protocol
from keyrange.kafka.messages.protocol import Code
from keyrange.kafka.position_lookup import bind_splits
from keyrange.kafka.response_frames import ReceiveBuffer
from keyrange.kafka.retry_deadline import Deadline
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import EARLIEST, LATEST
from keyrange.wire import fetch_response
from keyrange.wire.chunk_decoder import Chunk, Decoder, Workspace, scan_chunk

_log = logging.getLogger(__name__)

_IN_FLIGHT_MAX: Final = 32
_DOUBTS_MAX: Final = 3
_TOPIC_GONE: Final = frozenset(
    (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID)
)


class SplitReader:
    """Reads splits of one cluster. `view` says who leads; it is refreshed when that is outdated."""

    def __init__(self, cluster: Cluster, view: ClusterView, settings: ReadSettings) -> None:
        self._cluster = cluster
        self._view = view
        self.settings = settings
        self._buffer = ReceiveBuffer(partial(np.empty, dtype=np.uint8))
        self._workspace = Workspace(settings.decode)
        self._deadline = self.new_deadline()
        self._losses = LostRecords(cluster, settings)
        # Replicas of the client's rack that have failed.
        self._avoided: set[int] = set()
        self.bytes_received = 0

    def read(
        self, splits: Sequence[Split], deadline: Deadline | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The records of the splits: each split's in offset order, small splits side by side.

        `deadline` is that of the first chunk, where it was waited for before; None: from now.
        """
        bounds = bind_splits(self._cluster, self._view, splits)
        waiting = deque(
            Cursor(
                bound,
                bound.from_offset,
                self.decoder(bound),
                from_earliest=split.from_offset == EARLIEST,
                is_whole=(split.from_offset, split.until_offset) == (EARLIEST, LATEST),
            )
            for split, bound in zip(splits, bounds, strict=True)
            if bound.from_offset < bound.until_offset
        )
        for cursor, chunk, from_offset in self._chunks(waiting, True, deadline):
            yield from cursor.decoder.decode(chunk, from_offset, cursor.split.until_offset)

    def decoder(self, split: Split, shared: Sequence[str] = ()) -> Decoder:
        """A decoder for a split: of what its reader reads, or of the columns that are `shared`
        between all its readers."""
        placement, settings = split.placement, self.settings.decode
        if shared:
            settings = replace(settings, columns=tuple(shared))
        elif placement is not None:
            placement = placement.alone()
        return Decoder(
            split.topic, split.partition, settings, self._workspace, placement, split.delivery
        )

    def next_chunk(
        self, cursor: Cursor, deadline: Deadline | None = None
    ) -> tuple[Chunk, int] | None:
        """One chunk from where the cursor stands, and no request for what comes behind it, with the
        offset that it was asked for at, which lies further on where records were lost; None where
        what was left of the split is lost. `deadline` as in `read`."""
        chunks = self._chunks(deque([cursor]), False, deadline)
        try:
            return next(((chunk, from_offset) for _, chunk, from_offset in chunks), None)
        finally:
            chunks.close()

    def _chunks(
        self, waiting: deque[Cursor], ahead: bool, deadline: Deadline | None
    ) -> Generator[tuple[Cursor, Chunk, int], None, None]:
        """Chunk after chunk, each with the offset that it was asked for at.

        A chunk is valid until the next is taken. With `ahead` the next is asked for before.
        """
        in_flight: deque[InFlight] = deque()
        # The time before is not the broker's either, unless the caller says so.
        self._deadline = deadline or self.new_deadline()
        try:
            while waiting or in_flight:
                self._ask(waiting, in_flight)
                if not in_flight:
                    continue
                asked = in_flight.popleft()
                cursor = asked.cursor
                chunk, from_offset = self._receive(asked), cursor.position
                if chunk is None:
                    take_back(asked.connection, in_flight, waiting)
                else:
                    cursor.advance(chunk)
                if not cursor.done:
                    waiting.appendleft(cursor)
                if chunk is not None:
                    if ahead:
                        self._ask(waiting, in_flight)
                    yield cursor, chunk, from_offset
                    # The time that the rows were worked on is not the broker's.
                    self._deadline = self.new_deadline()
        finally:
            for left in in_flight:
                # Its answer would be taken for that of a later request.
                left.connection.close()

    def new_deadline(self) -> Deadline:
        """How long there may be no progress from now on."""
        return Deadline(self.settings.poll_timeout_ms, self._cluster.settings)

    def _ask(self, waiting: deque[Cursor], in_flight: deque[InFlight]) -> None:
        """Send requests for the splits that wait, in their order, while they are small together.

        What cannot be sent stays in its place; with nothing in flight there is a pause before it is
        tried again.
        """
        client = self._cluster.settings
        chunk_bytes = min(client.max_partition_fetch_bytes, client.fetch_max_bytes)
        while waiting and len(in_flight) < _IN_FLIGHT_MAX:
            ask_bytes = waiting[0].ask_bytes(chunk_bytes)
            left, scope = chunk_bytes - ask_bytes, self.settings.scope
            if in_flight and not may_join(waiting[0], in_flight, left, scope):
                return
            try:
                self._check_leader(waiting[0])
                in_flight.append(
                    send_fetch(self._cluster, self._view, waiting[0], ask_bytes, self._deadline)
                )
            except (ConnectionLost, KeyrangeError) as failure:
                if isinstance(failure, KeyrangeError) and not failure.retriable:
                    raise
                if not in_flight:
                    self._again(waiting[0], str(failure))
                return
            waiting.popleft()

    def _check_leader(self, cursor: Cursor) -> None:
        """Where another leads by now: whether its log is the one that was planned on, or read.
        Raises LOG_TRUNCATED where it is not, and losses fail."""
        epoch = self._view.epoch(cursor.split.topic_partition)
        if epoch <= cursor.leader_epoch:
            return
        self._losses.check_leader(cursor, self._view, epoch, max(self._deadline.left_ms, 1_000))
        cursor.leader_epoch = epoch

    def _receive(self, asked: InFlight) -> Chunk | None:
        """The chunk that was asked for, or None where the same place has to be asked again."""
        cursor, split = asked.cursor, asked.cursor.split
        most = self.settings.decode.record_batch_bytes_max
        try:
            frame, answer = receive_fetch(self._cluster, asked, self._buffer, most, self._deadline)
            self.bytes_received += len(frame)
        except ConnectionLost as lost:
            self._again(cursor, f"{lost} (broker={asked.connection.address})")
            return None
        except KeyrangeError as failure:
            # No answer to what was asked: bytes that somebody has mixed up, or meant so.
            if cursor.doubts >= _DOUBTS_MAX:
                raise
            cursor.doubts += 1
            self._again(cursor, str(failure))
            return None
        if answer.throttle_time_ms > 0:
            wait_throttled(cursor, answer.throttle_time_ms, self._deadline)
        names = (split.topic, self._view.topic_id(split.topic))
        fetched = next(
            (
                each
                for each in answer.partitions
                if each.partition == split.partition and each.topic in names
            ),
            None,
        )
        code = answer.error_code or (fetched.error_code if fetched else Code.NONE)
        if code != Code.NONE:
            self._handle(cursor, code)
            return None
        if fetched is None and answer.throttle_time_ms > 0 and not self._deadline.passed:
            # Over its quota a client is told how long to wait, and nothing else.
            return None
        if fetched is None:
            throttled = f"a client quota throttles this client by {answer.throttle_time_ms} ms"
            unnamed = "the broker's answer does not name the partition"
            self._again(cursor, throttled if answer.throttle_time_ms > 0 else unnamed)
            return None
        if fetched.preferred_read_replica >= 0 and fetched.records_end == fetched.records_at:
            self._go_to_replica(cursor, fetched.preferred_read_replica)
            return None
        data = frame[fetched.records_at : fetched.records_end]
        try:
            chunk = scan_chunk(data, split.topic, split.partition, cursor.position, fetched.aborted)
        except KeyrangeError as damage:
            if not self._read_elsewhere(cursor, damage):
                raise
            return None
        if chunk.next_offset == cursor.position:
            self._wait_for_records(cursor, fetched)
            return None
        known = chunk.below(fetched.high_watermark)
        if known is None:
            self._again(
                cursor,
                f"a batch claims offsets up to {chunk.next_offset}, the log is known up to "
                f"{fetched.high_watermark}",
            )
            return None
        cursor.doubts = 0
        cursor.trust()
        self._deadline = self.new_deadline()
        return known

    def _read_elsewhere(self, cursor: Cursor, damage: KeyrangeError) -> bool:
        """Damage may be that of one replica, or of the way here: another replica in sync is asked
        once, or the leader where it was none that sent it, or the same one where there is no other.

        Returns whether there is another try.
        """
        if damage.condition.name != "CORRUPT_BATCH" or cursor.distrusted:
            return False
        cursor.distrusted = True
        source = f"replica {cursor.replica}" if cursor.replica >= 0 else "the leader"
        if cursor.leave_replica() < 0:
            view = self._refresh(cursor)
            leader = view.leadership(cursor.split.topic_partition)
            others = [each for each in leader.in_sync if each != leader.node_id] if leader else []
            cursor.replica = next((each for each in others if each in view.brokers), -1)
        again = f"replica {cursor.replica}" if cursor.replica >= 0 else "the leader"
        # Not the error itself, which holds on to all that it has passed.
        _log.warning("%s It came from %s, and is read again from %s.", str(damage), source, again)
        return True

    def _go_to_replica(self, cursor: Cursor, node_id: int) -> None:
        """The leader names a replica in the client's rack (KIP-392)."""
        if cursor.replica >= 0:
            # A replica names none.
            self._again(cursor, f"replica {cursor.replica} names replica {node_id}")
        elif node_id in self._avoided:
            cursor.near = False
        elif node_id in self._view.brokers:
            cursor.replica = node_id
        else:
            self._again(cursor, f"the leader names replica {node_id}, which is not known")
            cursor.near = cursor.near and node_id in self._view.brokers

    def _wait_for_records(self, cursor: Cursor, fetched: fetch_response.FetchedPartition) -> None:
        """The range is planned up to what was there; an end that went back is waited for."""
        cursor.replica = -1
        if not self._deadline.passed:
            return
        if not self._losses.skip_cut_back(cursor, self._refresh(cursor)):
            self._again(
                cursor,
                f"the high watermark is {fetched.high_watermark}, the last stable offset "
                f"{fetched.last_stable_offset}",
            )

    def _handle(self, cursor: Cursor, code: int) -> None:
        """An error code of the broker: data loss, refusal, or try again."""
        cursor.leave_replica()
        if code == Code.OFFSET_OUT_OF_RANGE:
            if not self._losses.skip_out_of_range(cursor, self._refresh(cursor)):
                self._again(cursor, protocol.error_name(code))
        elif code in _TOPIC_GONE:
            self._topic_gone(cursor, code)
        elif code == Code.TOPIC_AUTHORIZATION_FAILED:
            raise error("AUTHORIZATION_FAILED", f"not allowed to read topic {cursor.split.topic}")
        elif protocol.is_retriable(code):
            self._again(cursor, protocol.error_name(code))
        else:
            what = f"a fetch failed with {protocol.error_name(code)}"
            raise error("BROKER_ERROR", what, **cursor.place)

    def _topic_gone(self, cursor: Cursor, code: int) -> None:
        """Deleted, or created anew with another id; or only metadata that is not there yet."""
        planned_id = self._view.topic_id(cursor.split.topic)
        try:
            view = self._refresh(cursor)
        except KeyrangeError as failure:
            if failure.condition.name != "UNKNOWN_TOPIC_OR_PARTITION":
                raise
            self._losses.skip_deleted(cursor)
            return
        if cursor.is_whole and cursor.position == cursor.split.from_offset:
            # It is of the topic that is there by now, of which its bounds were asked too.
            self._view = replace(self._view, topics={**self._view.topics, **view.topics})
        elif self._losses.skip_recreated(cursor, planned_id, view):
            return
        self._again(cursor, protocol.error_name(code))

    def _again(self, cursor: Cursor, why: str) -> None:
        """Before the same place is asked again: wait, and ask who leads; or give up."""
        if (left := cursor.leave_replica()) >= 0:
            self._avoided.add(left)
        if self._deadline.passed:
            what = f"no records for {self.settings.poll_timeout_ms} ms, last: {why}"
            raise error("REQUEST_TIMED_OUT", what, **cursor.place)
        _log.info("fetching %s again: %s", cursor.split.topic_partition, why)
        self._deadline.pause()
        try:
            self._refresh(cursor)
        except KeyrangeError as failure:
            if failure.condition.name == "UNKNOWN_TOPIC_OR_PARTITION":
                self._losses.skip_deleted(cursor)
            elif not failure.retriable:
                raise

    def _refresh(self, cursor: Cursor) -> ClusterView:
        """New metadata of the topic; its id stays the one that the split was planned with."""
        topic = cursor.split.topic
        view = self._cluster.describe([topic], max(self._deadline.left_ms, 1_000))
        planned = self._view.topic_id(topic)
        if not planned or view.topic_id(topic) == planned:
            topics = {**self._view.topics, topic: view.topics[topic]}
            self._view = ClusterView(view.cluster_id, view.brokers, topics)
        return view
