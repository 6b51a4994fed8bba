"""Which executor reads which key ranges, in the process that plans: who is there, who has what, and
the plan of a batch by that.

Between batches the Kafka group of the members is looked at, and what people asked for; an
assignment changes only there, after its heirs have prepared for it (`heirs.py`), and is in the
table before a batch is planned from it. Batches are
planned for tasks that run anywhere until there is an assignment and executors have reached this
process: those of the first batch of a run try. Where executors have reached the run before, and
have static names, the first batch is for those that the table names, and waits for them.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from keyrange.kafka.cluster import Cluster
from keyrange.members.assignment_log import AssignmentLog, Sighting
from keyrange.members.binding.own_address import route_to
from keyrange.members.binding.service import BindingService
from keyrange.members.coordinator_client import describe_members, read_members, remove_member
from keyrange.members.heirs import Heirs
from keyrange.members.model.assignment import (
    Assignment,
    Owners,
    Since,
    assign,
    ranges_by_slot,
    tempered,
)
from keyrange.members.model.copy_book import KnownState
from keyrange.members.model.join_metadata import MemberMetadata
from keyrange.members.model.late_binding import PinRule, count_tasks
from keyrange.members.model.pinned_plan import Shape, WorkUnit, portion_cuts
from keyrange.members.model.reassignment_timing import Membership, Present, Reassign
from keyrange.members.model.standbys import Place, Standing
from keyrange.members.model.task_greeting import Address, Greeting
from keyrange.members.model.unreached import Unreached
from keyrange.members.read_tasks import BoundTask, ReadTask, write_bound_task
from keyrange.members.status import now_ms as passed_ms
from keyrange.members.table.assignment_schema import REACHED, TRIED
from keyrange.members.table.assignments import open_assignments
from keyrange.model.offsets import TopicPartition
from keyrange.options import SourceOptions
from keyrange.options.members import MemberOptions

_log = logging.getLogger(__name__)

# A member whose tasks have not come here after so many batches does not reach this process.
_BATCHES_TO_GREET: Final = 3


class Pinning:
    """One run of a query. Not for two threads, but for the service's answers."""

    def __init__(self, options: SourceOptions, cluster: Cluster) -> None:
        self._options: MemberOptions = options.members
        is_strict = self._options.pin == "strict"
        self._rule = PinRule(strict=is_strict, wait_ms=self._options.pin_wait_ms)
        self._client = options.client
        self._cluster = cluster
        self._run = uuid.uuid4().hex
        storage = options.commits.revealed_storage()
        table = open_assignments(self._options.table, self._options.group, storage)
        self._written = AssignmentLog(table, self._options, self._options.group, self._run)
        # The members of the Kafka group, and what each says of itself, by slot.
        self._present: list[Present] = []
        self._told: dict[str, MemberMetadata] = {}
        self._seen_ms: dict[str, int] = {}
        self._has_looked = False
        # Whether the first batch is for executors that have not come yet; None: not known yet.
        self._awaits: bool | None = None
        self._look_again_at = 0.0
        self._weights: dict[TopicPartition, float] = {}
        self._heirs = Heirs(self._options.warmup_timeout_ms, bool(self._options.listener))
        self._standing = Standing(self._options.standby_replicas)
        self._service: BindingService | None = None
        self._planned = 0
        self._last_plan = ""
        # The assignment whose ranges the service knows.
        self._told_epoch = 0
        self._has_said = False
        self._unreached = Unreached()

    @property
    def assignment(self) -> Assignment | None:
        return self._written.assignment

    def close(self) -> None:
        if self._service is not None:
            self._service.close()

    def look(self) -> None:
        """Between two batches: see who is there and what was asked for, and assign anew where it is
        time. At most once a heartbeat, also where it fails, and not while the group rebalances.

        Raises ASSIGNMENT_CHANGED where another driver has taken over, and what the table and the
        group's coordinator fail with.
        """
        now = time.monotonic()
        if self._has_looked and now < self._look_again_at:
            return
        self._look_again_at = now + self._options.heartbeat_interval_ms / 1000
        self._settle()
        self._has_looked = True
        group = describe_members(self._cluster, self._options.kafka_group)
        if group.is_rebalancing:
            return
        self._present, self._told = read_members(group)
        now_ms, seen_ms = passed_ms(), _now_ms()
        self._seen_ms |= dict.fromkeys(self._told, seen_ms)
        before = self._written.membership.standings
        self._written.membership.observe(self._present, now_ms)
        taken = self._written.take_commands(now_ms, self._take_out)
        if self._moves(now_ms):
            self._reassign(taken)
        elif taken or self._written.membership.standings != before or self._is_news():
            self._write("members changed", self.assignment, self._written.membership, taken)

    def _moves(self, now_ms: int) -> bool:
        """Whether key ranges are assigned anew now. Who is to get some prepares for it first."""
        due = self._written.membership.due(now_ms)
        if due is None or not (self._weights or self.assignment is not None):
            self._heirs.drop()
            return False
        shares, present = self._shares(), [each.name for each in self._present]
        deal = partial(self._dealt, due, shares)
        return self._heirs.moves(due, self.assignment, shares.keys(), deal, present, now_ms)

    def _dealt(self, due: Reassign, shares: Mapping[TopicPartition, float]) -> Assignment:
        before = self.assignment
        epoch = before.epoch + 1 if before is not None else 1
        return assign(shares, due.members, before, epoch, self._written.standbys)

    def follow(self, state: KnownState | None) -> None:
        """Take in, before a batch is planned, the state of keys at the last commit: who is to copy
        it is told. And who came for the batch before."""
        if self._service is not None and self._options.standby_replicas:
            self._standing.heard(*self._service.heard(self._last_plan))
        self._heirs.follow(state, self._written.standbys)

    def take_in(
        self, sizes: Mapping[TopicPartition, float], partitions: Collection[TopicPartition]
    ) -> None:
        """Note how many bytes a batch reads, by partition: shares are by that. `partitions` are all
        that there are: one that has nothing yet belongs to somebody too."""
        for partition in partitions:
            self._weights.setdefault(partition, 0.0)
        for partition, size in sizes.items():
            self._weights[partition] = self._weights.get(partition, 0.0) + size
        self._settle()
        assignment = self.assignment
        if assignment is not None and not self._weights.keys() <= assignment.owners.keys():
            members = self._written.membership.taken_in
            if members:
                after = assign(self._shares(), members, assignment, assignment.epoch + 1)
                self._write("partitions were added", after, self._written.membership)

    def greeting(self) -> Greeting:
        """What tasks are told that are not bound: which member their executor is to have, and where
        this process listens."""
        return Greeting(self._address(), self._run)

    def owners(self, partitions: Sequence[TopicPartition]) -> Owners | None:
        """Who owns and reads the key ranges of the next batch; None for tasks that run anywhere."""
        assignment = self.assignment
        self._planned += 1
        if self._planned > 1:
            self._awaits = False
        if self._service is None:
            return None
        there = self._reached() | self._awaited()
        if (
            assignment is None
            or any(partition not in assignment.owners for partition in partitions)
            or not there
        ):
            self._awaits = False
            if assignment is not None and not there:
                self._say_unreached()
            self.pass_over()
            return None
        if said := self._unreached.planned(self._told, there, self._options.kafka_group):
            _log.warning("%s", said)
        if not self._reached():
            # The next run does not rely on it, unless this one sees that it holds.
            self._write("begins bound", assignment, self._written.membership, reached=TRIED)
        return self._readers(assignment)

    def _readers(self, assignment: Assignment) -> Owners:
        """The owners of key ranges, and who reads for those that are away."""
        away = frozenset(assignment.slots) - self._told.keys() - self._awaited()
        if not self._rule.strict:
            away |= self._standing.silent & {*assignment.slots}
        return self._standing.readers(assignment, self._written.standbys, away)

    def pass_over(self) -> None:
        """Note that the next batch is read by whoever is free: no slot has read all of its own."""
        if self._service is not None:
            self._last_plan = self._service.add([], [], (), 0, self._rule)

    def cuts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, ...]]:
        """Where the portions of a batch with these partitions may begin inside one of them, by the
        assignment as it stands."""
        owners = self._readers(self.assignment) if self.assignment is not None else {}
        return portion_cuts({p: owners[p] for p in partitions if p in owners}, self.shape)

    @property
    def shape(self) -> Shape:
        """Into how many portions each slot's ranges are cut."""
        count = self._options.splits_per_core
        return Shape({slot: count * cores for slot, cores in self._cores().items()}, count)

    def bind(
        self, portions: Sequence[WorkUnit], make: Callable[[WorkUnit], ReadTask]
    ) -> list[BoundTask]:
        """Tasks that ask for the portions when they run."""
        assert self._service is not None
        assert self.assignment is not None
        cores = self._cores()
        owners = [portion.slot for portion in portions]
        readers = [portion.reader for portion in portions]
        tasks = count_tasks(owners, cores)
        counts = Counter(owners)
        documents = [
            write_bound_task(make(each))
            | {"slot": each.slot, "reader": each.reader}
            | {"number": at, "count": counts[each.slot]}
            for at, each in enumerate(portions)
        ]
        if not tasks:
            self._last_plan = ""
            return []
        awaited = self._awaited()
        known = self._reached() | awaited, tasks, self._rule, awaited, readers
        name = self._service.add(owners, documents, *known, self._standing.standing_by)
        epoch, greeting = self.assignment.epoch, self.greeting()
        if self._told_epoch != epoch:
            self._service.tell_ranges(epoch, self._holdings(self.assignment))
            self._told_epoch = epoch
        self._last_plan = name
        return [BoundTask(greeting, name, number, epoch) for number in range(tasks)]

    def metrics(self) -> dict[str, Any]:
        """How the last batch was read, where it was bound, and who is there."""
        counts = self._service.counts(self._last_plan) if self._service is not None else None
        assignment = self.assignment
        return {
            "epoch": assignment.epoch if assignment is not None else 0,
            "members": len(self._present),
            "reached": len(self._reached()),
            "ownPortions": counts.own if counts is not None else 0,
            "foreignPortions": counts.foreign if counts is not None else 0,
            "unownedPortions": counts.unowned if counts is not None else 0,
            "standbyPortions": counts.standby if counts is not None else 0,
        }

    def _settle(self) -> None:
        self._written.settle(passed_ms())
        if self._awaits is None:
            reached = self._written.reached
            self._awaits = reached == REACHED and self._options.names != "dynamic"
            if reached == TRIED:
                _log.warning(
                    "no executor had reached the driver of the run before when it ended: the first "
                    "batch is read by whoever is free"
                )

    def _is_news(self) -> bool:
        """Whether executors have reached this process, or slots are elsewhere, and the table does
        not say so."""
        is_reached = bool(self._reached()) and self._written.reached != REACHED
        return is_reached or self._has_moved()

    def _has_moved(self) -> bool:
        places = self._places(self._written.membership)
        return self._standing.has_moved(self.assignment, places)

    def _awaited(self) -> frozenset[str]:
        """The slots that executors are to have that may be about to come."""
        if not self._awaits or self.assignment is None:
            return frozenset()
        members = self._written.membership.members
        return frozenset(
            slot
            for slot in self.assignment.slots
            if slot in members and members[slot].is_static and slot not in self._reached()
        )

    def _reassign(self, taken: int | None) -> None:
        due, announced = self._written.membership.due(passed_ms()), self._heirs.announced
        assert due is not None
        after = announced.after if announced is not None else self._dealt(due, self._shares())
        # What is written says that these were taken in: a driver that goes on from it agrees.
        membership = self._written.membership.copy()
        membership.applied(due, passed_ms())
        self._write(due.reason, after, membership, taken)
        self._heirs.drop()
        _log.info("key ranges are assigned anew, epoch %d: %s", after.epoch, due.reason)

    def _shares(self) -> dict[TopicPartition, float]:
        """The weights of all partitions that are known."""
        assignment = self.assignment
        known = {*self._weights, *(assignment.owners if assignment is not None else ())}
        return tempered({p: self._weights.get(p, 0.0) for p in known})

    def _take_out(self, name: str) -> None:
        """Out of the Kafka group too: a static member would stay there."""
        if any(each.name == name and each.is_static for each in self._present):
            remove_member(self._cluster, self._options.kafka_group, name)

    def _write(
        self,
        reason: str,
        assignment: Assignment | None,
        membership: Membership,
        commands_until: int | None = None,
        reached: str | None = None,
    ) -> None:
        sighting = Sighting(self._told, self._seen_ms)
        reached = REACHED if self._reached() else reached
        self._written.write(
            *(reason, assignment, membership, sighting, _now_ms(), passed_ms()),
            commands_until=commands_until,
            reached=reached,
            standbys=self._standbys(assignment, membership),
        )

    def _standbys(self, assignment: Assignment | None, membership: Membership) -> Owners:
        """Who keeps copies of what others own by an assignment."""
        if assignment is None:
            return {}
        places, before = self._places(membership), self._written.standbys
        return self._standing.chosen(assignment, self._shares(), places, before)

    def _places(self, membership: Membership) -> dict[str, Place]:
        """Where the slots are that have key ranges, or were."""
        stored = self._written.stored
        known = {each.slot: each for each in stored.members} if stored is not None else {}
        found = {}
        for slot in membership.taken_in:
            if (seen := self._told.get(slot) or known.get(slot)) is not None:
                found[slot] = Place(seen.host, seen.rack)
        return found

    def _holdings(self, assignment: Assignment) -> dict[str, Any]:
        """What each slot is told of its ranges."""
        stored = self._written.stored
        assert stored is not None
        as_of_now = Since(stored.run_id, assignment.epoch)
        found: dict[str, Any] = {}
        for slot, ranges in ranges_by_slot(assignment).items():
            since = stored.since.get(slot, as_of_now)
            found[slot] = {"ranges": ranges, "since": [since.run, since.epoch]}
        return found

    def _cores(self) -> dict[str, int]:
        reached, members = self._reached(), self._written.membership.members
        cores = {each.name: each.capacity for each in self._present if each.name in reached}
        cores |= {slot: members[slot].capacity for slot in self._awaited()}
        return {slot: max(round(each), 1) for slot, each in cores.items()}

    def _reached(self) -> frozenset[str]:
        """The slots whose holders are in the group and have come to this process."""
        if self._service is None:
            return frozenset()
        return self._service.slots() & self._told.keys()

    def _say_unreached(self) -> None:
        if self._has_said or self._planned < _BATCHES_TO_GREET or not self._present:
            return
        self._has_said = True
        address = self._address()
        _log.warning(
            "no executor has reached this process at %s:%d: its tasks run anywhere, and key ranges "
            "do not stay with their executors; option pin.driver.host says where executors find it",
            address.host,
            address.port,
        )

    def _address(self) -> Address:
        if self._service is None:
            host = self._options.host or route_to(self._client)
            bind_address = self._options.bind_address
            self._service = BindingService(
                *(host, self._options.port, bind_address), heirs=self._heirs
            )
        return self._service.address


def _now_ms() -> int:
    return int(time.time() * 1000)
