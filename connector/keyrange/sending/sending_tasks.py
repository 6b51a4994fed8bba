"""Senders as tasks of Spark's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa

from keyrange.sending.shard_sender import ShardSender, Share
from keyrange.sending.topic_address import TopicAddress

SENT: Final = "sender int"


def sending(
    address: TopicAddress, shares: Sequence[Share]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow over the places of shares: sends each by a sender that begins and ends here,
    and hands on its number (`SENT`). Raises as `ShardSender.send`."""

    def send_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            own = [shares[at] for at in batch.column(0).to_pylist()]
            for share in own:
                sender = ShardSender(address, share.application, share.name, share.number)
                with closing(sender):
                    sender.send(share)
            numbers = pa.array([share.number for share in own], pa.int32())
            yield pa.RecordBatch.from_arrays([numbers], ["sender"])

    return send_all
