"""The positions that a query has committed, told to a Kafka group: Kafka's tools then show its lag.

Spark's checkpoint stays the source of truth. What goes wrong here is said and counted, and holds no
query up.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from keyrange.errors import DeniedError, KeyrangeError, error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.groups import commit_group_offsets, committed_offsets
from keyrange.kafka.model.offset_mirror_timing import MARK, MirrorState
from keyrange.model.offsets import Positions, TopicPartition

_log = logging.getLogger(__name__)


_OTHERS_CHARACTERS_MAX: Final = 200


class GroupMirror:
    """Commits to `group_id`, as nobody's member; `timeout_ms` bounds what one call may wait.

    `mark` goes with the offsets, and tells this run of a query from others that commit to the
    group; without one it is not looked for them.
    """

    def __init__(
        self, cluster: Cluster, group_id: str, timeout_ms: float = 1_000, mark: str = ""
    ) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._timeout_ms = timeout_ms
        self._mark = mark
        self._state = MirrorState(mark)
        self._has_begun = not mark

    def mirror(
        self, positions: Positions, epochs: Mapping[TopicPartition, int], now_ms: float
    ) -> None:
        """Commit what moved of `positions`, which are all that the query has durably committed.

        `epochs` are leader epochs where they are known; `now_ms` is of a clock that does not go
        back. A refusal or a failure is logged once for its reason, until a commit goes well.
        """
        due = self._state.due(positions, now_ms)
        if not due:
            return
        began = time.monotonic()
        if not self._has_begun:
            self._has_begun = True
            self._tell_what_stands_there(due)
        self._look_for_others(now_ms)
        try:
            absent = commit_group_offsets(
                self._cluster, self._group_id, due, epochs, self._timeout_ms, self._mark
            )
        except KeyrangeError as failure:
            now_ms += (time.monotonic() - began) * 1000
            denied, text = isinstance(failure, DeniedError), failure.message
            # The condition is the reason of what failed: the text has addresses and times, new with
            # every try.
            reason = text if denied else failure.condition.name
            outcome: Literal["refused", "failed"] = "refused" if denied else "failed"
            if self._state.give_up(outcome, due, reason, text, now_ms):
                _log.warning("the offsets of group '%s' stay behind: %s", self._group_id, failure)
        else:
            self._taken(due, absent, now_ms + (time.monotonic() - began) * 1000)

    def _tell_what_stands_there(self, due: Positions) -> None:
        """Say that offsets of no query are about to be replaced: a consumer that resumes from them
        would miss records, or read them again."""
        found = self._committed(due)
        own = {p: at for p, (at, mark) in found.items() if mark.startswith(MARK)}
        others = {p: at for p, (at, _) in found.items() if p not in own and at != due[p]}
        if others:
            partition = min(others)
            _log.warning(
                "group '%s' has offsets that no query has committed, as %d of %s, and this query "
                "commits %d in its place, and so on. If a consumer resumes from this group, set "
                "mirrorOffsets=false, or name a group of the query's own",
                *(self._group_id, others[partition], partition, due[partition]),
            )

    def _look_for_others(self, now_ms: float) -> None:
        """Say once that others commit what this mirror has committed: the group's lag is then that
        of whoever wrote last. Where it cannot be asked it is asked later."""
        partitions = self._state.to_look_at(now_ms)
        found = self._committed(partitions) if partitions else {}
        if other := self._state.other({place: mark for place, (_, mark) in found.items()}):
            partition, mark = other
            shared = error(
                "GROUP_OFFSETS_SHARED",
                f"the offset of {partition} in group '{self._group_id}', which this query has "
                f"committed, was committed since by {mark[:_OTHERS_CHARACTERS_MAX]}",
            )
            _log.warning("the lag of group '%s' is not this query's: %s", self._group_id, shared)

    def _committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, str]]:
        """What stands in the group, as far as it can be asked."""
        try:
            return committed_offsets(self._cluster, self._group_id, partitions, self._timeout_ms)
        except KeyrangeError as failure:
            _log.debug("group '%s' was not looked at: %s", self._group_id, failure)
            return {}

    def _taken(self, due: Positions, absent: set[TopicPartition], now_ms: float) -> None:
        """All but the partitions of topics that are gone, or that Kafka does not tell of yet."""
        if taken := {partition: at for partition, at in due.items() if partition not in absent}:
            self._state.acknowledge(taken, now_ms)
        if not absent:
            return
        text = (
            f"Kafka knows no topic {', '.join(sorted({partition.topic for partition in absent}))}"
        )
        if self._state.leave_out(absent, text, now_ms):
            _log.warning("offsets of group '%s' are left out: %s", self._group_id, text)

    def metrics(self) -> dict[str, int | str]:
        """How many commits were `committed`, `refused`, `failed`; `lastError` since the last good
        one, or an empty text."""
        return self._state.metrics()


def new_mark() -> str:
    """Names this run, and where it is planned, to people and to other runs."""
    return f"{MARK}process {os.getpid()} on host {socket.gethostname()}, run {uuid.uuid4().hex}"


def own_group(prefix: str, known: str) -> str:
    """A group of one query alone, under a prefix; `known` is the one in its checkpoint, where it
    stays. Without a prefix there is none."""
    if not prefix or known.startswith(f"{prefix}-"):
        return known if prefix else ""
    return f"{prefix}-{uuid.uuid4().hex}"
