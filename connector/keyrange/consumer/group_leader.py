"""What the leader of a group of consumers does: it says who takes part, and deals key ranges out.

When they are dealt out anew is decided by `members/model/membership.py`: a static consumer that is
away keeps its ranges for registration.timeout.ms, and those that join are gathered for
expansion.timeout.ms. Kafka calls for an assignment whenever its group changes, and at no other
time: what falls due in between the leader calls for itself, by joining once more.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from keyrange.consumer.assignor import Dealing, overlap
from keyrange.consumer.commit_log import CommitLog
from keyrange.consumer.settings import ConsumerSettings
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.members.model.assignment import Assignment, changes
from keyrange.members.model.membership import Membership, Present, Timeouts
from keyrange.members.model.messages import Peer
from keyrange.members.model.shares import Interest, Share, interests_of, write_share
from keyrange.members.table.assignment_rows import Stored, StoredMember
from keyrange.members.table.assignments import AssignmentTable, open_assignments

_log = logging.getLogger(__name__)

_TRIES: Final = 5
_PAUSE_S: Final = 0.2


class GroupLeader:
    """An assignor. It runs in the member's thread, and `look` in the user's; `cluster` and `ledger`
    are its own. `slot` is the consumer's.

    To be read: `due_at_ms`, when there is something to assign anew if nothing else happens, on the
    system's monotonic clock; `partitions`, all that somebody has.
    """

    def __init__(
        self, settings: ConsumerSettings, cluster: Cluster, ledger: CommitLog, slot: str
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._slot = slot
        self._dealing = Dealing(cluster, settings.source.key_ranges.accepts_splits)
        self._lock = threading.Lock()
        self._table = self._open()
        # The state as of the row that run `_run_id` has written, or as it was found there.
        self._membership = Membership(self._timeouts)
        self._run_id = ""
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
            last = self._table.last()
            if last is None:
                return
            self._go_on(last)
            self.due_at_ms = self._membership.next_due_ms()
            if self._table.commands(last.commands_until):
                self.due_at_ms = _passed_ms()

    @property
    def _timeouts(self) -> Timeouts:
        members = self._settings.members
        return Timeouts(members.registration_timeout_ms, members.expansion_timeout_ms)

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
                # What was decided is not written: it is decided anew, from what is.
                self._membership, self._run_id = Membership(self._timeouts), ""
                # Another leader may have been quicker.
                passes = failure.retriable or failure.condition.name == "ASSIGNMENT_CHANGED"
                if left == 1 or not passes:
                    raise
                time.sleep(_PAUSE_S)
        slots = frozenset(each.slot for each in interests.values())
        shares = {}
        for member, interest in interests.items():
            revoked = changes(before, after, interest.slot).revoked
            receivers = {
                each.slot
                for partition, spans in revoked.items()
                for each in after.owners.get(partition, ())
                if each.slot != interest.slot and any(overlap(each, span) for span in spans)
            }
            ranges = after.of(interest.slot)
            share = Share(after.epoch, ranges, slots, frozenset(receivers), self._slot)
            shares[member] = write_share(share)
        return shares

    def _assigned(
        self, interests: Mapping[str, Interest], peers: Mapping[str, Peer]
    ) -> tuple[Assignment | None, Assignment]:
        """The assignment before, and the one that holds from now on."""
        table = self._open()
        last = table.last()
        if last is not None:
            self._go_on(last)
        membership, now_ms = self._membership, _passed_ms()
        before, known = last.assignment if last is not None else None, _standings(membership)
        present = [
            Present(interest.slot, peers[member].instance_id is not None)
            for member, interest in interests.items()
        ]
        membership.observe(present, now_ms)
        if all(each.assigned_capacity is None for each in membership.members.values()):
            # Nobody has anything that could move.
            membership.force(now_ms)
        taken = self._take_commands(table, last, now_ms) if last is not None else None
        due = membership.due(now_ms)
        epochs = [claim.epoch for claim in self._ledger.claims().values()]
        epoch = 1 + max([before.epoch if before else 0, *epochs])
        members = (
            dict(due.members)
            if due is not None
            else {
                name: state.assigned_capacity
                for name, state in membership.members.items()
                if state.assigned_capacity is not None
            }
        )
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
        if after is not before or taken is not None or _standings(membership) != known:
            reason = due.reason if due is not None else f"{len(interests)} consumers"
            self._write(table, last, reason, after, self._stored(last, interests, peers), taken)
        self.due_at_ms = membership.next_due_ms()
        self.partitions = frozenset(after.owners)
        return before, after

    def _go_on(self, last: Stored) -> None:
        """Take over what another leader wrote last; time begins to pass for it here."""
        if last.run_id == self._run_id:
            return
        self._membership = Membership(self._timeouts)
        if last.membership:
            self._membership = Membership.from_json(last.membership, self._timeouts, _passed_ms())
        self._run_id = last.run_id
        self.partitions = frozenset(last.assignment.owners if last.assignment else ())

    def _take_commands(self, table: AssignmentTable, last: Stored, now_ms: int) -> int | None:
        """Do what people asked for; the number of the last command, None without one."""
        taken: int | None = None
        for command in table.commands(last.commands_until):
            if command.action == "remove":
                self._membership.remove(command.name, now_ms)
            else:
                self._membership.force(now_ms)
            taken = command.number
            _log.info("%s %s, as %s asked for", command.action, command.name, command.who)
        return taken

    def _write(
        self,
        table: AssignmentTable,
        last: Stored | None,
        reason: str,
        after: Assignment,
        members: tuple[StoredMember, ...],
        taken: int | None,
    ) -> None:
        known = last.commands_until if last is not None else 0
        stored = Stored(
            seq=1 + (last.seq if last is not None else 0),
            group=self._settings.source.commits.group,
            run_id=uuid.uuid4().hex,
            at_ms=time.time_ns() // 1_000_000,
            reason=reason,
            assignment=after,
            membership=self._membership.to_json(),
            members=members,
            member_group=self._settings.members.kafka_group,
            commands_until=taken if taken is not None else known,
        )
        table.append(stored)
        table.maintain()
        self._run_id = stored.run_id

    def _stored(
        self, last: Stored | None, interests: Mapping[str, Interest], peers: Mapping[str, Peer]
    ) -> tuple[StoredMember, ...]:
        now_ms, passed_ms = time.time_ns() // 1_000_000, _passed_ms()
        before = {each.slot: each for each in last.members} if last is not None else {}
        there = {interest.slot: (member, interest) for member, interest in interests.items()}
        rows: list[StoredMember] = []
        for slot, state in sorted(self._membership.members.items()):
            row = before.get(slot) or StoredMember(
                name=slot, slot=slot, is_static=False, state="", since_ms=0, seen_ms=0
            )
            if slot in there:
                member, interest = there[slot]
                row = replace(
                    row,
                    name=peers[member].instance_id or slot,
                    seen_ms=now_ms,
                    host=interest.host,
                    source=interest.source,
                )
            row = replace(
                row,
                is_static=state.is_static,
                state=str(state.standing),
                since_ms=max(now_ms - passed_ms + state.since_ms, 0),
            )
            rows.append(row)
        return tuple(rows)


def _standings(membership: Membership) -> dict[str, str]:
    return {name: str(state.standing) for name, state in membership.members.items()}


def _passed_ms() -> int:
    """A clock that nobody sets."""
    return time.monotonic_ns() // 1_000_000
