"""One sender of a query: its part of a batch to the topics, in one transaction with its mark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.model.sender_messages import Batch, Token
from keyrange.model.offsets import TopicPartition
from keyrange.sending.marked_sender import MarkedSender
from keyrange.sending.model.marks import Mark, read_mark
from keyrange.sending.topic_address import TopicAddress
from keyrange.storage.data_files import DataFile
from keyrange.storage.directory import Directory
from keyrange.storage.model.sink_driver import overtaken
from keyrange.storage.object_store import FAILURES
from keyrange.wire.produced_batches import stored_checksum

# A transaction that Kafka wants to be sent once more.
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Share:
    """What one sender is to send of a batch: `rows` are its batches, in their order, however often
    they are asked for. `number` is the sender's among those of `application` and its output `name`.
    `if_forgotten`: what a sender does that finds no mark. `is_made`: whether this run has made the
    rows."""

    application: str
    name: str
    number: int
    rows: Iterable[Batch]
    mark: Mark
    if_forgotten: str = "fail"
    is_made: bool = False


class ShardSender:
    """Sender `number` of an application's output, over a connection of its own. Not for several
    threads. Whoever has begun last counts: the others are fenced."""

    def __init__(self, address: TopicAddress, application: str, name: str, number: int) -> None:
        parts = (application, name, str(number))
        self._id = ":".join(filter(None, parts))
        self._sender = MarkedSender(address, self._id)
        self._mark: Mark | None = None

    def close(self) -> None:
        self._sender.close()

    def start(self) -> Mark | None:
        """Fence whoever sent before, and learn what is out; None where Kafka knows of nothing.
        Raises as `MarkedSender`."""
        token = self._sender.start()
        self._mark = None if token is None else read_mark(token.number, token.text)
        return self._mark

    def leave(self, mark: Mark) -> None:
        """A mark without rows."""
        self._sent((), mark)

    def send(self, share: Share) -> None:
        """The rows of a share, and its mark: all or nothing, once, however often it is called.

        Raises as `is_out` and `MarkedSender.send` do.
        """
        for _ in range(_TRIES - 1):
            try:
                self._send(share)
                return
            except KeyrangeError as failure:
                if not failure.retriable or failure.condition.name == "PRODUCER_FENCED":
                    raise
        self._send(share)

    def is_out(self, share: Share) -> bool:
        """Whether the rows of a share are in the topic.

        Raises COMMITS_FENCED where a later driver has sent, or has stopped this one,
        CHECKPOINT_BEHIND where the batch of this number that is out is another one,
        TOPIC_OUTPUT_FORGOTTEN."""
        return self._known(share).is_out(share.mark.batch_id)

    def _known(self, share: Share) -> Mark:
        if not self._sender.is_started:
            self.start()
        known, own = self._mark or _forgotten(share, self._id), share.mark
        if known.driver > own.driver:
            raise overtaken(known.driver, source_id=share.application)
        is_other = known.batch_id == own.batch_id and known.plan not in ("", own.plan)
        if is_other or (share.is_made and known.batch_id > own.batch_id):
            message = (
                f"the topic has the query's batches until {known.batch_id}, and another batch "
                f"{own.batch_id} is to be sent"
            )
            raise error("CHECKPOINT_BEHIND", message, group=self._id)
        return known

    def _send(self, share: Share) -> None:
        known, own = self._known(share), share.mark
        if not known.is_out(own.batch_id):
            mark = replace(own, senders=max(own.senders, known.senders))
            self._sent(share.rows, mark)

    def _sent(self, rows: Iterable[Batch], mark: Mark) -> None:
        self._sender.send(rows, Token(mark.offset, mark.text))
        self._mark = mark


def _forgotten(share: Share, group: str) -> Mark:
    """What stands for a mark that is not there. Each sender leaves one before the first batch."""
    batch_id = share.mark.batch_id
    if share.if_forgotten == "fail":
        raise error(
            "TOPIC_OUTPUT_FORGOTTEN",
            f"group {group} has no mark any more, which would tell whether the rows are out",
            batch=batch_id,
        )
    return Mark(batch_id if share.if_forgotten == "skip" else batch_id - 1)


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of files of a batch in the directory `location`, which are read while others are
    sent. `storage`: settings of the object store."""

    files: tuple[DataFile, ...]
    batch_id: int
    location: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __iter__(self) -> Iterator[Batch]:
        directory = Directory(self.location, self.storage)
        for file in self.files:
            try:
                yield from self._in(directory, file)
            except (*FAILURES, KeyError) as failure:
                message = f"{file.name}, output of batch {self.batch_id}: {failure}"
                raise error("VERDICT_DAMAGED", message, path=self.location) from None

    def _in(self, directory: Directory, file: DataFile) -> Iterator[Batch]:
        with directory.open(file.name) as source, pa.ipc.open_file(source) as stored:
            for number in range(stored.num_record_batches):
                batches = stored.get_batch(number)
                # Arrow reads what a damaged file points to, wherever that is.
                batches.validate(full=True)
                ends = np.frombuffer(batches.column("data").buffers()[1], np.int64)
                # Whoever sends them writes into them.
                data = np.frombuffer(batches.column("data").buffers()[2], np.uint8).copy()
                topics, partitions, records, checksums = (
                    batches.column(name).to_pylist()
                    for name in ("topic", "partition", "records", "checksum")
                )
                for at, count in enumerate(records):
                    partition = TopicPartition(topics[at], partitions[at])
                    own = data[ends[at] : ends[at + 1]]
                    if stored_checksum(*partition, count, own) != checksums[at]:
                        raise ValueError("its bytes are not those that were written")
                    yield Batch(partition, count, len(own), own)
