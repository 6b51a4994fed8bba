"""`keyrange.Consumer`: a consumer of key ranges without Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa

from keyrange.consumer.consumer_positions import ConsumerPositions
from keyrange.consumer.left_names import left_name
from keyrange.consumer.rebalance import Sharing, interest_of, join, read_subscription
from keyrange.consumer.records import (
    Acknowledged,
    ConsumerRecord,
    Partition,
    Ranges,
    offsets_of,
    partition_of,
    read_ranges,
    records_of,
)
from keyrange.consumer.settings import parse_consumer_options
from keyrange.consumer.transaction import Transaction
from keyrange.consumer.transaction_output import OutputTopics
from keyrange.errors import KeyrangeError, error
from keyrange.kafka.model.sender_messages import Batch
from keyrange.members.executor_names import Surroundings, find_name, name_settings
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import SPACE, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.options.option import OptionValue

if TYPE_CHECKING:
    from keyrange.values.reading import ValueReader

# How long an idle consumer sleeps before it asks for the ends of its partitions again.
_PAUSE_S: Final = 0.005
_PAUSE_MAX_S: Final = 0.1


class Consumer(ConsumerPositions):
    """Reads key ranges of partitions, and commits single records.

    `options` are the source's, without those about Spark, and the consumer's own
    (guides/consumer.md). `producer`: properties of Kafka's producer, kafka.NAME, for what
    transactions send. One thread may use it. Raises INVALID_OPTIONS with everything that is wrong;
    nothing is connected before `assign` or `subscribe`.
    """

    def __init__(
        self,
        options: Mapping[str, OptionValue],
        producer: Mapping[str, OptionValue] | None = None,
    ) -> None:
        super().__init__(parse_consumer_options(options, producer))
        self._topics = OutputTopics(self._settings)
        self._reader: ValueReader | None = None
        self._settled = False

    def assign(
        self, ranges: Mapping[Partition, Ranges], listener: KeyRangeListener | None = None
    ) -> None:
        """Read these key ranges, each `(lo, hi)` with both ends included, and no others; an empty
        list is the whole partition.

        They are taken over where another consumer of the commit group has them: that one can commit
        nothing any more. What the group has done is not handed out again. Raises
        INVALID_KEY_RANGES, UNKNOWN_TOPIC_OR_PARTITION, RANGES_LOST, and as the commit table and
        brokers do. Where ranges cannot be taken nothing is read until the next call. What another
        has had meanwhile the listener hears to be lost, and assigned anew.
        """
        self._check(outside_of_blocks="assign")
        if self._sharing is not None:
            raise error("CONSUMER_STATE", "this consumer has subscribed: unsubscribe before assign")
        wanted = read_ranges(ranges)
        self._settle()
        view = self._cluster.describe({partition.topic for partition in wanted})
        missing = sorted(wanted.keys() - set(view.partitions()))
        if missing:
            message = f"the cluster has no partition {missing[0]}"
            raise error("UNKNOWN_TOPIC_OR_PARTITION", message)
        self._check_accepted(wanted)
        self._listener = listener or self._listener
        with self._fenced_is_lost():
            assigned = self._holding.move(view, wanted, self._listener)
        self._assigned = True
        self._listener.on_key_ranges_assigned(assigned)

    def subscribe(
        self,
        topics: Sequence[str] = (),
        listener: KeyRangeListener | None = None,
        *,
        pattern: str | None = None,
    ) -> None:
        """Share the partitions of topics with all consumers of the group, key range by key range.

        With `pattern`, a regular expression for the whole name, these are all topics that match,
        also later ones. Ranges come with `poll`, and move when consumers come and go. With a static
        name (guides/consumer.md) a restart within session.timeout.ms moves nothing. Raises
        UNKNOWN_TOPIC_OR_PARTITION, NO_STATIC_MEMBER_INFO_SET, SESSION_TIMEOUT_REFUSED.
        """
        self._check(outside_of_blocks="subscribe")
        if self._assigned:
            message = "this consumer has ranges or a group already: unsubscribe first"
            raise error("CONSUMER_STATE", message)
        wanted = read_subscription(topics, pattern)
        self._listener = listener or self._listener
        self._settle()
        said = interest_of(self._cluster, self._name, wanted)
        self._sharing = join(self._settings, self._name, self._holding, said)
        self._assigned = True

    def unsubscribe(self) -> None:
        """Commit, let go of all key ranges, and leave the group as `close` does; `subscribe` or
        `assign` may follow.

        The listener hears that the ranges are revoked: what it acknowledges then still counts.
        Raises as `commit` does, but for RANGES_LOST; where the listener was told, it is over all
        the same. Without an effect where there is nothing to leave.
        """
        self._check(outside_of_blocks="unsubscribe")
        if not self._assigned:
            return
        self._commit_what_counts()
        spans = self._holding.spans
        try:
            if spans:
                self._listener.on_key_ranges_revoked(spans)
                self._commit_what_counts()
            self._end()
        finally:
            self._leave()
            self._holding.drop()
            if not self._name.is_static:
                # Another consumer may go on under this name.
                self._name = find_name(name_settings(self._settings.members), Surroundings())
                self._holding.go_by(self._name.name)
                self._settled = False

    def poll(self, timeout_ms: float = 1_000) -> list[pa.RecordBatch]:
        """The next rows, each batch of one partition and in offset order; empty where there are
        none within `timeout_ms`.

        Columns are those of the source, keyHash among them; key and value have the types that
        keyFormat and valueFormat say. Raises MEMBERSHIP_ENDED where another consumer has this one's
        name, when `timeout_ms` has passed, GAP_TIMED_OUT (see
        `KeyRangeListener.on_deliveries_spent`), BAD_VALUE with badValues=fail until the record that
        it names is acknowledged, and as reading does.
        """
        self._check()
        if not self._assigned:
            raise error("CONSUMER_STATE", "poll was called before assign or subscribe")
        deadline = time.monotonic() + timeout_ms / 1000
        pause_s, rows_max = _PAUSE_S, self._settings.source.max_batch_rows
        batches: list[pa.RecordBatch] = []
        rows = received = 0
        try:
            while True:
                if self._sharing is not None and not batches:
                    self._step(self._sharing, deadline)
                self._remember()
                found = self._holding.next(self._listener, keeps=self._keeps_ranges)
                if found is not None:
                    self._in_use = True
                    partition, read = found
                    batches.append(self._typed(read))
                    self._holding.received(partition)
                    received += 1
                    rows += len(read)
                left_s = deadline - time.monotonic()
                if left_s <= 0 or (batches and (found is None or rows >= rows_max)):
                    return batches
                if found is None:
                    time.sleep(min(pause_s, left_s))
                    pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        except BaseException as failure:
            self._holding.take_back()
            # What was handed out is handed over; the next call finds the same.
            kept = received if isinstance(failure, Exception) else 0
            self._hand_back(batches[kept:])
            if kept:
                return batches[:kept]
            raise

    def _typed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with their keys and values read."""
        source = self._settings.source
        if not source.forms.columns:
            return rows
        if self._reader is None:
            from keyrange.values.reading import ValueReader

            self._reader = ValueReader(source.forms, source.registry)
        return self._reader.read_all(rows)

    def _step(self, sharing: Sharing, deadline: float) -> None:
        if self._keeps_ranges:
            sharing.member.polled()
            return
        try:
            sharing.step(self._listener)
        except KeyrangeError as failure:
            if failure.condition.name == "MEMBERSHIP_ENDED":
                # A program that only goes on would call again at once, and for ever.
                time.sleep(max(deadline - time.monotonic(), _PAUSE_MAX_S))
            raise

    def poll_records(self, timeout_ms: float = 1_000) -> list[ConsumerRecord]:
        """As `poll`, the rows as records."""
        batches: list[pa.RecordBatch] = []
        try:
            batches = self.poll(timeout_ms)
            return [record for batch in batches for record in records_of(batch)]
        except BaseException:
            self._hand_back(batches)
            raise

    def _hand_back(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self._holding.hand_back(partition_of(batch), batch)

    def acknowledge(self, what: Acknowledged, offsets: Iterable[int] | None = None) -> int:
        """Records are done: all of some batches, records, or a topic-partition's `offsets`.

        Returns how many were not done before; what was revoked or lost meanwhile does not count.
        They are committed by `commit`, and by themselves where they are more than
        max.num.ranges.to.commit ranges. Raises NOT_DELIVERED for what this consumer was not handed,
        INVALID_OFFSET for what is no whole number.
        """
        self._check()
        done = offsets_of(what, offsets)
        self._use_block()
        found = sum(self._holding.acknowledge(p, each) for p, each in done.items())
        if self._block is None and self._holding.holds_many():
            self.commit()
        return found

    def commit(self) -> dict[TopicPartition, int]:
        """Write what is acknowledged to the commit table; returns up to which offset everything of
        this consumer's ranges is done, by partition.

        Raises RANGES_LOST where another consumer has taken them over: then nothing of it counts.
        """
        self._check(outside_of_blocks="commit")
        with self._fenced_is_lost():
            return self._holding.commit()

    def transaction(self) -> Transaction:
        """A block whose output and acknowledgements stand or fall together:

            with consumer.transaction() as transaction:
                for batch in consumer.poll():
                    transaction.send(work(batch), topic="prices")
                    consumer.acknowledge(batch)

        At its end they are committed, for readers of committed records at once. Where it fails
        nothing was sent, and what was handed out in it comes again. Key ranges do not move while it
        is open. The end raises RANGES_LOST where another consumer has taken them over: then it is
        for that one to say whether all of it counts, or nothing. Raises CONSUMER_STATE within
        another one.
        """
        self._check(outside_of_blocks="transaction")
        return Transaction(
            self._topics, self._begin_block, self._use_block, self._commit_block, self._end_block
        )

    def close(self) -> None:
        """Commit what is acknowledged, and end. Without an effect the second time. A transaction
        that is open is aborted."""
        if self._closed:
            return
        try:
            if self._block is not None:
                self._end_block(self._block)
            if self._assigned:
                self.commit()
                self._end()
        finally:
            self._closed = True
            self._leave()
            if self._name.lock is not None:
                os.close(self._name.lock)
            self._holding.transactions.close()
            self._topics.close()
            self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin_block(self, block: Transaction) -> None:
        self._check(outside_of_blocks="transaction")
        if not self._assigned:
            raise error("CONSUMER_STATE", "a transaction was begun before assign or subscribe")
        # What was acknowledged before it stands, whatever becomes of it.
        self.commit()
        self._block, self._in_use = block, False

    def _commit_block(self, block: Transaction, batches: list[Batch]) -> None:
        if self._block is not block:
            message = "the consumer was closed within the transaction: nothing of it is committed"
            raise error("CONSUMER_STATE", message)
        self._block = None
        with self._fenced_is_lost():
            if batches:
                self._holding.commit_with(batches)
            else:
                self._holding.forget()
                self._holding.commit()

    def _end_block(self, block: Transaction) -> None:
        """A block is over: what of it was not committed comes again."""
        if self._block in (None, block):
            self._block = None
            self._holding.go_back()

    def _use_block(self) -> None:
        """Something is handed out or said in a block: from here on no ranges move."""
        self._remember()
        self._in_use = True

    def _remember(self) -> None:
        if self._block is not None and not self._in_use:
            self._holding.remember()

    def _commit_what_counts(self) -> None:
        """As `commit`, and where there is nothing to commit what is lost is lost too."""
        try:
            with self._fenced_is_lost():
                self._holding.check_holds()
            self.commit()
        except KeyrangeError as failure:
            if failure.condition.name != "RANGES_LOST":
                raise

    def _end(self) -> None:
        """Say how far everything is done, and that a name which is nobody's is free."""
        self._holding.mirror(at_once=True)
        if not self._name.is_static:
            self._holding.commit_log.close()

    def _leave(self) -> None:
        """End the membership: the group gives the ranges of a static member to others when it has
        been away for too long."""
        if self._sharing is not None:
            self._sharing.member.close()
        self._sharing = None
        self._assigned = False

    @contextmanager
    def _fenced_is_lost(self) -> Iterator[None]:
        """Who cannot commit any more has nothing. Raises RANGES_LOST, and the listener hears it."""
        had = self._holding.spans
        try:
            yield
        except KeyrangeError as failure:
            is_known = failure.condition.name == "RANGES_LOST"
            if not is_known and failure.condition.name != "COMMITS_FENCED":
                raise
            lost = self._holding.spans
            if self._sharing is not None:
                self._sharing.lose(self._listener)
            elif lost:
                self._holding.drop()
                self._listener.on_key_ranges_lost(lost)
            if is_known:
                raise
            raise error(
                "RANGES_LOST", f"another consumer has taken over what this one had: {_text(had)}"
            ) from None

    def _settle(self) -> None:
        """Without a name of its own a consumer goes on under that of one that has ended: each name
        stands in the commit table for good."""
        if not self._settled and not self._name.is_static:
            self._name = left_name(
                self._name, self._holding.commit_log, self._settings, self._cluster
            )
            self._settled = True

    def _check_accepted(self, wanted: Mapping[TopicPartition, Sequence[KeyRange]]) -> None:
        accepts = self._settings.source.key_ranges.accepts_splits
        for partition, spans in wanted.items():
            if list(spans) != [SPACE] and not accepts(partition.topic):
                message = f"accept.range.fetch keeps topic {partition.topic} whole"
                raise error("RANGE_FETCH_NOT_ACCEPTED", message)


def _text(ranges: Mapping[TopicPartition, Sequence[KeyRange]]) -> str:
    return "; ".join(f"{p} {', '.join(map(str, spans))}" for p, spans in ranges.items())
