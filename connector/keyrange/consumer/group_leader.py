"""What the leader of a group of consumers does: it says who takes part, and deals key ranges out.

`members/model/reassignment_timing.py` decides when it assigns them anew: a static consumer that is
away keeps its ranges for registration.timeout.ms, and those that join are gathered for
expansion.timeout.ms. Kafka calls for an assignment whenever its group changes, and at no other
time: what falls due in between the leader calls for itself, by joining once more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from keyrange.consumer.assignor import Dealing
from keyrange.consumer.commit_log import CommitLog
from keyrange.consumer.settings import ConsumerSettings
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.kafka.model.subscription import SubscribePattern
from keyrange.members.assignment_log import AssignmentLog, Sighting
from keyrange.members.model.assignment import Assignment, without
from keyrange.members.model.consumer_messages import Interest, Share, interests_of, write_share
from keyrange.members.model.group_messages import Peer
from keyrange.members.model.join_metadata import MemberMetadata
from keyrange.members.model.reassignment_timing import Present
from keyrange.members.status import now_ms as passed_ms
from keyrange.members.table.assignment_schema import Stored
from keyrange.members.table.assignments import AssignmentTable, open_assignments
from keyrange.ranges.model.key_ranges import common

_log = logging.getLogger(__name__)

_TRIES: Final = 5
_PAUSE_S: Final = 0.2


class GroupLeader:
    """An assignor. It runs in the member's thread, and `look` in the user's; `cluster` and
    `commit_log` are its own. `slot` is the consumer's, and `pattern` what it has subscribed to.

    To be read: `due_at_ms`, when there is something to assign anew if nothing else happens, on the
    system's monotonic clock; `partitions`, all that somebody has.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: Cluster,
        commit_log: CommitLog,
        slot: str,
        pattern: str = "",
    ) -> None:
        self._settings = settings
        self._commit_log = commit_log
        self._slot = slot
        self._cluster = cluster
        self._pattern = SubscribePattern(pattern) if pattern else None
        self._dealing = Dealing(cluster, settings.source.key_ranges.accepts_splits)
        self._lock = threading.Lock()
        self._table = self._open()
        commits = settings.source.commits
        self._written = AssignmentLog(self._table, settings.members, commits.group)
        self.due_at_ms: int | None = None
        self.partitions: frozenset[TopicPartition] = frozenset()

    def __call__(self, members: Sequence[Peer]) -> Mapping[str, bytes]:
        """Each member's share, by its id. The assignment is written before anybody is told of it,
        so an epoch is one assignment, whoever leads."""
        with self._lock:
            return self._shares({peer.member_id: peer for peer in members})

    def look(self) -> None:
        """Between two generations: whether people have asked for something; and where another
        process has led the group before this one, what it waits for. Raises as the table does."""
        with self._lock:
            last = self._follow(self._table)
            if last is None:
                return
            self.due_at_ms = self._written.membership.next_due_ms()
            if self._table.commands(last.commands_until):
                self.due_at_ms = passed_ms()

    def _open(self) -> AssignmentTable:
        commits = self._settings.source.commits
        storage = commits.revealed_storage()
        return open_assignments(self._settings.members.table, commits.group, storage)

    def _shares(self, peers: Mapping[str, Peer]) -> dict[str, bytes]:
        interests = interests_of({each.member_id: each.metadata for each in peers.values()})
        for left in range(_TRIES, 0, -1):
            try:
                before, after = self._assigned(interests, peers)
                break
            except KeyrangeError as failure:
                self._written.forget()
                # Another leader may have been quicker.
                passes = failure.retriable or failure.condition.name == "ASSIGNMENT_CHANGED"
                if left == 1 or not passes:
                    raise
                time.sleep(_PAUSE_S)
        slots = frozenset(each.slot for each in interests.values())
        shares = {}
        for member, interest in interests.items():
            ranges = after.of(interest.slot)
            revoked = without(before.of(interest.slot), ranges) if before is not None else {}
            receivers = {
                each.slot
                for partition, spans in revoked.items()
                for each in after.owners.get(partition, ())
                if each.slot != interest.slot and any(common(each.span, span) for span in spans)
            }
            shares[member] = write_share(
                Share(after.epoch, ranges, slots, frozenset(receivers), self._slot, interest.wish)
            )
        return shares

    def _assigned(
        self, interests: Mapping[str, Interest], peers: Mapping[str, Peer]
    ) -> tuple[Assignment | None, Assignment]:
        """The assignment before, and the one that holds from now on."""
        last = self._follow(self._open())
        interests = self._up_to_date(interests)
        membership, now_ms = self._written.membership, passed_ms()
        before, known = self._written.assignment, membership.standings
        present = [
            Present(interest.slot, peers[member].instance_id is not None)
            for member, interest in interests.items()
        ]
        membership.observe(present, now_ms)
        if not membership.taken_in:
            # Nobody has anything that could move.
            membership.force(now_ms)
        taken = self._written.take_commands(now_ms) if last is not None else None
        due = membership.due(now_ms)
        epochs = [claim.epoch for claim in self._commit_log.claims().values()]
        epoch = 1 + max([before.epoch if before else 0, *epochs])
        members = dict(due.members) if due is not None else membership.taken_in
        after = self._dealing.deal(
            list(interests.values()), members, before, epoch, anew=due is not None
        )
        if due is not None:
            membership.applied(due, now_ms)
            # Somebody who was put out may live.
            membership.observe(present, now_ms)
        if before is not None and before.owners == after.owners and before.epoch == epoch - 1:
            # The same members with the same ranges are no new assignment.
            after = before
        if after is not before or taken is not None or membership.standings != known:
            reason = due.reason if due is not None else f"{len(interests)} consumers"
            at_ms = time.time_ns() // 1_000_000
            sighting = _sighting(interests, peers, at_ms)
            self._written.write(
                reason, after, membership, sighting, at_ms, passed_ms(), commands_until=taken
            )
        self.due_at_ms = membership.next_due_ms()
        self.partitions = frozenset(after.owners)
        return before, after

    def _up_to_date(self, interests: Mapping[str, Interest]) -> Mapping[str, Interest]:
        """Who reads by this consumer's pattern reads what it matches now: each finds a new topic at
        its own time, and the first one would get all of it. No other pattern is tried: anybody may
        write one that takes for ever."""
        if self._pattern is None:
            return interests
        topics = tuple(sorted(self._cluster.describe_matching(self._pattern.reads).topics))
        return {
            member: replace(each, topics=topics) if each.pattern == self._pattern.pattern else each
            for member, each in interests.items()
        }

    def _follow(self, table: AssignmentTable) -> Stored | None:
        last = self._written.follow(table, passed_ms())
        if last is not None:
            self.partitions = frozenset(last.assignment.owners if last.assignment else ())
        return last


def _sighting(interests: Mapping[str, Interest], peers: Mapping[str, Peer], at_ms: int) -> Sighting:
    there = {
        each.slot: MemberMetadata(each.slot, host=each.host, source=each.source)
        for each in interests.values()
    }
    names = {each.slot: peers[m].instance_id or each.slot for m, each in interests.items()}
    return Sighting(there, dict.fromkeys(there, at_ms), names)
