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

from keyrange.consumer.commit_log import CommitLog
from keyrange.consumer.settings import ConsumerSettings
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.members.assignment_log import AssignmentLog, Sighting
from keyrange.members.model.assignment import Assignment, Owned, assign, tempered, without
from keyrange.members.model.consumer_messages import (
    Interest,
    Share,
    interests_of,
    subscribers,
    write_share,
)
from keyrange.members.model.group_messages import Peer
from keyrange.members.model.join_metadata import MemberMetadata
from keyrange.members.model.reassignment_timing import Present
from keyrange.members.status import now_ms as passed_ms
from keyrange.members.table.assignment_schema import Stored
from keyrange.members.table.assignments import AssignmentTable, open_assignments
from keyrange.model.key_ranges import SPACE, common
from keyrange.model.offsets import EARLIEST, LATEST, TopicPartition
from keyrange.model.subscription import SubscribePattern

_log = logging.getLogger(__name__)

_TRIES: Final = 5
_PAUSE_S: Final = 0.2
# The whole group waits while its leader asks.
_WEIGHTS_MS: Final = 2_000

Owners = Mapping[TopicPartition, tuple[Owned, ...]]


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
        after = self._deal(list(interests.values()), members, before, epoch, anew=due is not None)
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

    def _deal(
        self,
        interests: Sequence[Interest],
        members: Mapping[str, float],
        before: Assignment | None,
        epoch: int,
        anew: bool,
    ) -> Assignment:
        """The assignment to `members`, slot to capacity; `interests` are of those who are there.

        Who is away reads what it had. Without `anew` nobody's ranges move, but those of who does
        not read their topic any more; partitions that nobody has are dealt out.
        """
        old = before.owners if before is not None else {}
        there = {each.slot for each in interests}
        reading = [each for each in interests if each.slot in members]
        if before is not None:
            away = sorted(members.keys() - there)
            reading += [Interest(slot, tuple({p.topic for p in before.of(slot)})) for slot in away]
        owners: dict[TopicPartition, tuple[Owned, ...]] = {}
        for slots, topics in subscribers(reading).items():
            owners |= self._of_topics(slots, topics, members, old, epoch, anew)
        return Assignment(epoch, dict(sorted(owners.items())))

    def _of_topics(
        self,
        slots: frozenset[str],
        topics: Sequence[str],
        members: Mapping[str, float],
        old: Owners,
        epoch: int,
        anew: bool,
    ) -> Owners:
        """Of topics that the same slots read."""
        view = self._cluster.describe(topics, may_miss=topics)
        # A broker that has just started may not know a topic yet.
        unknown = set(topics) - view.topics.keys()
        there = {*view.partitions(), *(p for p in old if p.topic in unknown)}
        kept = {partition: old[partition] for partition in sorted(there) if partition in old}
        stays = all(each.slot in slots for owned in kept.values() for each in owned)
        if not there or (not anew and stays and kept.keys() == there):
            return kept
        weights = self._weights(there, view)
        previous = Assignment(max(epoch - 1, 1), kept) if kept else None
        dealt = assign(weights, {slot: members[slot] for slot in sorted(slots)}, previous, epoch)
        return {
            partition: owned
            if self._settings.source.key_ranges.accepts_splits(partition.topic)
            else _whole(owned)
            for partition, owned in dealt.owners.items()
        }

    def _weights(
        self, partitions: set[TopicPartition], view: ClusterView
    ) -> dict[TopicPartition, float]:
        """How many records each partition holds."""
        held, known = dict.fromkeys(partitions, 0.0), view.partitions()
        try:
            if known:
                begins, ends = (
                    self._cluster.list_offsets(
                        view, dict.fromkeys(known, place), timeout_ms=_WEIGHTS_MS
                    )
                    for place in (EARLIEST, LATEST)
                )
                held |= {p: float(max(ends[p][0] - begins[p][0], 0)) for p in known}
        except KeyrangeError as failure:
            if not failure.retriable:
                raise
            _log.warning("partitions count alike, what they hold cannot be read: %s", failure)
        return tempered(held)

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


def _whole(owned: Sequence[Owned]) -> tuple[Owned, ...]:
    """A partition that may not be split, with who has the most of it."""
    most = max(owned, key=lambda each: (each.span.size, each.slot))
    return (Owned(SPACE, most.slot),)
