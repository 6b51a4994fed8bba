"""Where a damaged record batch is read again, before its error ends the task."""

from __future__ import annotations

import logging
from collections.abc import Callable

from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.fetching.cursor import Cursor

_log = logging.getLogger(__name__)


def read_elsewhere(
    cursor: Cursor, damage: KeyrangeError, refresh: Callable[[], ClusterView]
) -> bool:
    """Damage may be that of one replica, or of the way here: another replica in sync is asked once,
    or the leader where it was none that sent it, or the same one where there is no other.

    Returns whether there is another try. `refresh` asks for the replicas.
    """
    if damage.condition.name != "CORRUPT_BATCH" or cursor.distrusted:
        return False
    cursor.distrusted = True
    source = f"replica {cursor.replica}" if cursor.replica >= 0 else "the leader"
    if cursor.leave_replica() < 0:
        cursor.replica = _other_replica(refresh(), cursor)
    again = f"replica {cursor.replica}" if cursor.replica >= 0 else "the leader"
    # Not the error itself, which holds on to all that it has passed.
    _log.warning("%s It came from %s, and is read again from %s.", str(damage), source, again)
    return True


def _other_replica(view: ClusterView, cursor: Cursor) -> int:
    """A replica in sync that does not lead; -1 where there is none."""
    leader = view.leadership(cursor.split.topic_partition)
    others = [each for each in leader.in_sync if each != leader.node_id] if leader else []
    return next((each for each in others if each in view.brokers), -1)
