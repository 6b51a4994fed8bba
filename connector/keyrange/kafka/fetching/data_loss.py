"""Records that a task cannot read any more: OFFSET_OUT_OF_RANGE, a log that ends before what is
read does or is not the one that was planned on, and a topic that was deleted or created anew.

Records that are gone are an error, or with `fail_on_data_loss` False a warning and the rest of the
range. What only looks like a loss for a moment is asked for again.
"""

from __future__ import annotations

import logging

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.fetching.cursor import Cursor
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.kafka.groups import epoch_ends
from keyrange.kafka.model.loss_policy import raise_or_warn, recreated
from keyrange.model.offsets import EARLIEST, LATEST, READ_UNCOMMITTED, OffsetRange, TopicPartition

_log = logging.getLogger(__name__)


class LostRecords:
    """Decides whether records of a split are lost, and moves its cursor behind those that are.

    The calls that skip return whether there are any; else the same place is asked again. They raise
    DataLossError with `fail_on_data_loss`. `view` has just been asked for.
    """

    def __init__(self, cluster: Cluster, settings: ReadSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        # Partition, the epoch that was asked for and the leader's: where it ends.
        self._ends: dict[tuple[TopicPartition, int, int], int] = {}

    def check_leader(
        self, cursor: Cursor, view: ClusterView, epoch: int, timeout_ms: float
    ) -> None:
        """The log of the leader in `epoch` may part from the one that is read: one that was elected
        uncleanly has lost the end of the log, and writes other records at the same offsets.

        Only leader epochs tell (KIP-320): each new leader is asked once where the epoch ends in its
        log that is read by. Raises ConnectionLost where the topic is not known, and as `epoch_ends`
        does.
        """
        if cursor.rests_on is None or cursor.rests_on[0] == epoch:
            return
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
            return
        cut_back = error(
            "KAFKA_DATA_LOSS.LOG_TRUNCATED",
            f"some data may have been lost: the log of partition {partition} was cut back to {end} "
            f"while a batch up to {cursor.split.until_offset} is read, as after an unclean leader "
            "election; from there on it holds other records",
            was_leader_epoch=known,
            leader_epoch=epoch,
        )
        self._tell(cut_back)

    def skip_out_of_range(self, cursor: Cursor, view: ClusterView) -> bool:
        """OFFSET_OUT_OF_RANGE: what lies before the log begins, or behind its end, is lost."""
        partition = cursor.split.topic_partition
        earliest = self._offset(view, cursor, EARLIEST)
        latest = self._offset(view, cursor, LATEST)
        if earliest <= cursor.position <= latest:
            # A new leader may be a little behind for a moment.
            return False
        began = cursor.position > cursor.split.from_offset
        begins_later = earliest > cursor.position
        if began or not cursor.from_earliest or earliest < cursor.position:
            self._lose_rest(cursor, f"the log of {partition} holds {OffsetRange(earliest, latest)}")
        if begins_later:
            cursor.position = min(earliest, cursor.split.until_offset)
        return True

    def skip_cut_back(self, cursor: Cursor, view: ClusterView) -> bool:
        """No records came: they are lost if the log ends before the split does, and late if not."""
        # Only the leader knows whether the records are gone or late.
        latest = self._offset(view, cursor, LATEST)
        if latest >= cursor.split.until_offset:
            return False
        self._lose_rest(cursor, f"the log ends at {latest}")
        return True

    def skip_recreated(self, cursor: Cursor, planned_id: str, view: ClusterView) -> bool:
        """The topic is lost if its id is another than the split was planned with. Raises
        TOPIC_RECREATED with `raises_recreated`."""
        split = cursor.split
        now = view.topic_id(split.topic)
        if not (planned_id and now and planned_id != now):
            return False
        if self._settings.raises_recreated:
            raise recreated(split.topic, planned_id, now)
        self._lose_rest(cursor, f"the topic was recreated, its id was {planned_id} and is {now}")
        return True

    def skip_deleted(self, cursor: Cursor) -> None:
        """The cluster does not know the topic: the rest of the split is lost."""
        self._lose_rest(cursor, "the topic was deleted")

    def _tell(self, failure: KeyrangeError) -> None:
        raise_or_warn(failure, self._settings.fail_on_data_loss, _log.warning)

    def _lose_rest(self, cursor: Cursor, what: str) -> None:
        split = cursor.split
        span = OffsetRange(cursor.position, split.until_offset)
        failure = error(
            "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE",
            f"some data may have been lost: cannot read offsets {span} of topic partition "
            f"{split.topic_partition}: {what}",
        )
        self._tell(failure)
        cursor.position = split.until_offset

    def _offset(self, view: ClusterView, cursor: Cursor, which: int) -> int:
        partition = cursor.split.topic_partition
        return self._cluster.list_offsets(view, {partition: which}, READ_UNCOMMITTED)[partition][0]
