"""Senders as tasks of Spark's, and in the process of a driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa

from keyrange.sending.shard_sender import Sent, ShardSender, Share
from keyrange.sending.topic_address import TopicAddress

SENT: Final = "sender int, rows long"
_SENT: Final = pa.schema([("sender", pa.int32()), ("rows", pa.int64())])


def send(address: TopicAddress, share: Share) -> Sent:
    """One share, by a sender that begins and ends here. Raises as `ShardSender.send`."""
    with closing(ShardSender(address, share.application, share.name, share.number)) as sender:
        return sender.send(share)


def sending(
    address: TopicAddress, shares: Sequence[Share]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow over the places of shares: sends each, and says in columns `SENT` what was
    sent."""

    def send_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sent = [send(address, shares[at]) for at in batch.column(0).to_pylist()]
            columns = [[each.number for each in sent], [each.rows for each in sent]]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(column, field.type)
                    for column, field in zip(columns, _SENT, strict=True)
                ],
                schema=_SENT,
            )

    return send_all
