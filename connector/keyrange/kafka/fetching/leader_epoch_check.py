"""Whether a log is still the one that was planned on.

A leader that was elected uncleanly has lost the end of the log, and writes other records at the
same offsets. Only leader epochs tell (KIP-320): each new leader is asked where the epoch ends in
its log that is read by.
"""

from __future__ import annotations

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.fetching.cursor import Cursor
from keyrange.kafka.groups import epoch_ends
from keyrange.kafka.model.offsets import TopicPartition


class LogChecks:
    """Asks new leaders, each once for an epoch."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # Partition, the epoch that was asked for and the leader's: where it ends.
        self._ends: dict[tuple[TopicPartition, int, int], int] = {}

    def truncated(
        self, cursor: Cursor, view: ClusterView, epoch: int, timeout_ms: float
    ) -> KeyrangeError | None:
        """The loss, where the log of the leader in `epoch` parts from the one that is read.

        Raises ConnectionLost where the topic is not known, and as `epoch_ends` does.
        """
        if cursor.rests_on is None or cursor.rests_on[0] == epoch:
            return None
        (known, until), partition = cursor.rests_on, cursor.split.topic_partition
        key = (partition, known, epoch)
        if key not in self._ends:
            try:
                found = epoch_ends(self._cluster, view, {partition: known}, timeout_ms)
            except KeyrangeError as failure:
                if failure.condition.name != "UNKNOWN_TOPIC_OR_PARTITION":
                    raise
                # Whether it was deleted is found out where the next try looks for its leader.
                raise ConnectionLost(failure.message) from None
            self._ends[key] = found[partition][1]
        end = self._ends[key]
        if not 0 <= end < until:
            return None
        return error(
            "KAFKA_DATA_LOSS.LOG_TRUNCATED",
            f"some data may have been lost: the log of partition {partition} was cut back to {end} "
            f"while a batch up to {cursor.split.until_offset} is read, as after an unclean leader "
            "election; from there on it holds other records",
            was_leader_epoch=known,
            leader_epoch=epoch,
        )
