"""What users are told about key ranges: by a plain consumer, and in the executors of a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from keyrange.errors import error
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

Assigned = Mapping[TopicPartition, Sequence[KeyRange]]


class KeyRangeListener:
    """Override what is of interest. The ranges are sorted, and each `str()` reads `[lo, hi]`.

    A `keyrange.Consumer` calls from within `poll`, `assign` or `close`, in the thread that calls
    these. A query with option keyRangeListener calls in the executors, from the first task that
    runs there with another assignment than the one before.
    """

    def on_key_ranges_announced(self, ranges: Assigned) -> bool:  # noqa: ARG002
        """These will be this consumer's, or this executor's, soon: state may warm up. Nothing of
        them is handed out yet.

        Returns whether it is ready at once; otherwise they come after `Consumer.ready()` or
        warmup.timeout.ms. An executor of a query has no `ready()`: it asks here again, twice a
        second, until the answer is true. It asks beside its tasks: `keyrange.slot()` is of no use
        here, and a call that raises counts as one with nothing to prepare.
        """
        return True

    def on_key_ranges_assigned(self, ranges: Assigned) -> None:
        """These are this consumer's, or this executor's, from now on: records follow."""

    def on_key_ranges_revoked(self, ranges: Assigned) -> None:
        """These go to another one. What is acknowledged here still counts; the rest is handed out
        there. Where a consumer cannot commit it, it has these no more all the same, and hears that
        the others are lost."""

    def on_key_ranges_lost(self, ranges: Assigned) -> None:
        """These are another one's already, or were meanwhile: what is acknowledged of them counts
        for nothing. Calls `on_key_ranges_revoked` unless it is overridden, as Kafka's does."""
        self.on_key_ranges_revoked(ranges)

    def on_deliveries_spent(self, records: pa.RecordBatch) -> None:
        """Records that were handed out maxDeliveries times, and never acknowledged within
        gap.timeout.ms, with key and value in bytes. Where this returns, they are committed as
        done; keep them somewhere. Of `keyrange.Consumer` only.

        Raises GAP_TIMED_OUT unless it is overridden.
        """
        topic, partition = (records.column(name)[0].as_py() for name in ("topic", "partition"))
        offsets = records.column("offset").to_pylist()
        raise error(
            "GAP_TIMED_OUT",
            f"{len(offsets)} records were handed out again and again and not acknowledged",
            topic=topic,
            partition=partition,
            offsets=offsets[:10],
        )
