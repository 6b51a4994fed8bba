"""The executor's side of members: the member process that belongs to it, its slot, and what its
bound tasks read."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from keyrange.errors import KeyrangeError, error
from keyrange.members.binding.caller import Caller, greet
from keyrange.members.binding.channel import BadLine
from keyrange.members.executor import (
    executor_directory,
    executor_process,
    task_property,
    this_executor,
)
from keyrange.members.executor_names import name_settings
from keyrange.members.heir import Announce, Heir
from keyrange.members.launch import ensure_member, member_directory
from keyrange.members.model.late_binding import NO_SLOT
from keyrange.members.model.task_greeting import Greeting
from keyrange.members.range_listener_calls import Held, Listening
from keyrange.members.read_tasks import BoundTask, ReadTask, read_bound_task
from keyrange.members.slot_directories import (
    FOREIGN,
    OWN,
    STANDBY,
    ReadRecord,
    SlotLocation,
    batch_of_task,
    note_slot,
    noted,
    query_of_task,
    reading,
    slots_directory,
)
from keyrange.members.status import MemberSetup, MemberStatus, TaskProgress, now_ms, read_status
from keyrange.options import SourceOptions
from keyrange.ranges.sharing.shared_directory import name_of

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

Rows = Iterator["pa.RecordBatch"]
# How long a greeting waits for the executor to have a slot.
_GREETING_S: Final = 60.0
_GREETING_PAUSE_S: Final = 0.5
# How long a task does without a member that could not be started.
_PAUSE_MS: Final = 10_000
_FENCED, _FAILED = "FENCED", "FAILED"


def greeted(options: SourceOptions, greeting: Greeting, rows: Rows) -> Rows:
    """The rows of a task that is not bound. Meanwhile its executor gets its member, and the
    planning process hears from it; neither is waited for.

    Raises DYNAMIC_ALLOCATION where static names were asked for, and Spark takes executors away, and
    what `_Member.check` does.
    """
    member = _member(options, greeting)
    if member is None:
        yield from rows
        return
    if greeting not in _greeting:
        _greeting.add(greeting)
        Thread(target=member.greet, name="keyrange-greeting", daemon=True).start()
    member.check()
    yield from _with_progress(member, rows)
    member.check()


# What this process has greeted, or is about to.
_greeting: Final[set[Greeting]] = set()


def read_bound(options: SourceOptions, task: BoundTask, read: Callable[[ReadTask], Rows]) -> Rows:
    """The rows of a bound task: of its slot's portions first.

    Raises what `Caller.portions`, `Listening.tell` and `_Member.check` do.
    """
    member = _member(options, task.greeting)
    caller = Caller(task.greeting.address, task.plan, task.number, batch_of_task())
    if member is None:
        for each in caller.portions(lambda: NO_SLOT):
            yield from read(read_bound_task(each))
        return
    yield from _with_progress(member, _bound_rows(member, task, caller, read))


def _bound_rows(
    member: _Member, task: BoundTask, caller: Caller, read: Callable[[ReadTask], Rows]
) -> Rows:
    """The rows of a bound task in an executor that may have a slot."""
    slot = NO_SLOT

    def slot_now() -> str:
        nonlocal slot
        slot = member.slot()
        if slot != NO_SLOT:
            member.note(slot, task.epoch, caller)
            member.tell(slot, task.epoch, caller)
        return slot

    for portion in caller.portions(slot_now):
        record = member.begin(slot, task, caller.batch, portion["last"])
        whose = _whose(portion, slot)
        with reading(whose):
            yield from read(read_bound_task(portion))
        if whose == OWN and record is not None:
            try:
                record.finish(caller.batch, task.plan, portion["number"], portion["count"])
            except OSError as failure:
                _log.warning("slot %s cannot note what it has read: %s", slot, failure)
    # Also of a slot that has nothing to read yet.
    if caller.copies:
        member.inherit()


def _whose(portion: Mapping[str, Any], slot: str) -> str:
    """As `Slot.portion` says it."""
    if portion["slot"] == slot:
        return OWN
    return STANDBY if portion["reader"] == slot else FOREIGN


def _with_progress(member: _Member, rows: Rows) -> Generator[pa.RecordBatch, None, None]:
    """Rows, while the member is told that they come: it gives its name up where a task stops."""
    with TaskProgress(member.directory) as progress:
        for batch in rows:
            yield batch
            progress.yielded()


def _member(options: SourceOptions, greeting: Greeting) -> _Member | None:
    """The member of this executor; None where that can have no directory, as where the disk is
    full. Only who has to have a static name cannot do without: raises OSError then."""
    try:
        return _Member(options, greeting)
    except OSError as failure:
        if options.members.names == "static":
            raise
        _log.warning("this executor has no directory, and so no slot: %s", failure)
        return None


class _Member:
    """The member of this executor, as its tasks see it."""

    def __init__(self, options: SourceOptions, greeting: Greeting) -> None:
        self._greeting = greeting
        self._source = options
        self._options = options.members
        self._owner = executor_process()
        executor, cores = this_executor(self._owner.pid, task_property("spark.master"))
        self._setup = _setup(options, greeting, executor, cores)
        self._executor_directory = executor_directory()
        self._member_id = ""
        self._ask_at_ms = 0

    @property
    def directory(self) -> Path:
        return member_directory(self._setup, self._executor_directory)

    def slot(self) -> str:
        """The slot that this executor has, NO_SLOT while it has none.

        What the coordinator has confirmed counts, and for no longer than it holds: a process that
        was paused says what it said before, and another executor may have the name by then.

        Raises what `_check` does, and what `ensure_member` does where the name has to be a static
        one: else rows do without a member.
        """
        status = self._ensured()
        if status is None:
            return NO_SLOT
        self._member_id = status.member_id
        self._check(status)
        return status.name if status.holds_name(now_ms()) else NO_SLOT

    def _ensured(self) -> MemberStatus | None:
        if now_ms() < self._ask_at_ms:
            return None
        try:
            return ensure_member(self._setup, self._executor_directory, self._owner)
        except (KeyrangeError, OSError) as failure:
            if self._setup.names.policy == "static":
                raise
            _log.warning("this executor has no member: %s", failure)
            self._ask_at_ms = now_ms() + _PAUSE_MS
            return None

    def check(self) -> None:
        """Raises DUPLICATE_STATIC_MEMBER where this executor has lost its name to another, and
        MEMBER_NOT_STARTED where it has to have a static name and its member says why it cannot."""
        status = read_status(self.directory)
        if status is not None and status.run == self._setup.run:
            self._check(status)

    def _check(self, status: MemberStatus) -> None:
        if status.state == _FENCED:
            if (listening := self._listening()) is not None:
                listening.lose()
            raise error(
                "DUPLICATE_STATIC_MEMBER",
                f"this executor is not {status.name} any more: {status.failure}",
            )
        if status.state == _FAILED and self._setup.names.policy == "static":
            raise error("MEMBER_NOT_STARTED", f"this executor has no name: {status.failure}")

    def greet(self) -> None:
        """Tell the planning process of this executor, as soon as it has a slot."""
        until = time.monotonic() + _GREETING_S
        try:
            slot = self.slot()
            while slot == NO_SLOT and time.monotonic() < until:
                time.sleep(_GREETING_PAUSE_S)
                slot = self.slot()
            if slot == NO_SLOT:
                _log.warning("this executor has no slot, see %s", self.directory)
                # The next task tells of the slot that it may have by then.
                _greeting.discard(self._greeting)
            if greet(self._greeting.address, slot):
                self.inherit()
        except (KeyrangeError, BadLine, OSError) as failure:
            _log.warning(
                "this executor cannot reach the driver at %s, and its key ranges do not stay with "
                "it; harmless where the query has ended: %s",
                self._greeting.address,
                failure,
            )
            _greeting.discard(self._greeting)

    def inherit(self) -> None:
        """Copy what the slot is to have copies of, beside the tasks."""
        lock = self._executor_directory / f"heir-{name_of(self._options.group)}.lock"
        heir = Heir(self._source, self._greeting.address, self.slot, self._announcer(), lock)
        heir.begin()

    def _announcer(self) -> Announce:
        listening = self._listening()
        if listening is None:
            return lambda *_: True
        return listening.announce

    def note(self, slot: str, epoch: int, caller: Caller) -> None:
        """Say in the executor which ranges its slot has. State has to do without where that fails,
        rows not."""
        run = self._greeting.run
        try:
            location = self._location(slot)
            known = noted(location, run)
            if known is None or known[0] < epoch:
                note_slot(location, caller.holding(slot, run))
        except OSError as failure:
            _log.warning("slot %s has no directory: %s", slot, failure)

    def begin(self, slot: str, task: BoundTask, batch: int, last: int) -> ReadRecord | None:
        """The record of the slot's directory, in which a task notes what it reads; None where it
        is to note nothing: where there is no slot or no directory, and for a late task, whose plan
        was made with another assignment."""
        if slot == NO_SLOT or batch < 0:
            return None
        try:
            known = noted(self._location(slot), self._greeting.run)
            if known is None or known[0] != task.epoch:
                return None
            known[1].begin(batch, last)
        except OSError as failure:
            _log.warning("slot %s cannot note what it reads: %s", slot, failure)
            return None
        return known[1]

    def _location(self, slot: str) -> SlotLocation:
        base = slots_directory(self._options.slot_directory)
        return SlotLocation(
            query_of_task(), self._options.group, slot, base, self._executor_directory
        )

    def tell(self, slot: str, epoch: int, caller: Caller) -> None:
        """Tell the user's listener which ranges the slot has, where that was not done; rows wait.
        Raises as `Listening.tell` does."""
        if (listening := self._listening()) is not None:
            held = Held(slot, self._member_id, self._greeting.run)
            listening.tell(held, epoch, lambda: caller.holding(slot, held.run).ranges)

    def _listening(self) -> Listening | None:
        named, group = self._options.listener, self._options.group
        if not named:
            return None
        return Listening(named, query_of_task(), group, self._executor_directory)


def _setup(options: SourceOptions, greeting: Greeting, executor: str, cores: int) -> MemberSetup:
    members = options.members
    policy = members.names
    if task_property("spark.dynamicAllocation.enabled") == "true":
        if policy == "static":
            raise error(
                "DYNAMIC_ALLOCATION",
                "memberNames is static, and spark.dynamicAllocation.enabled is true: Spark takes "
                "executors away that have ranges, and brings others",
            )
        policy = "dynamic"
    return MemberSetup(
        names=name_settings(members, policy),
        member_group=members.kafka_group,
        kafka=members.kafka,
        session_timeout_ms=members.session_timeout_ms,
        heartbeat_interval_ms=members.heartbeat_interval_ms,
        max_poll_interval_ms=members.poll_interval_ms,
        cores=float(cores),
        executor=executor,
        rack=os.environ.get(options.rack_variable, "") if options.rack_variable else "",
        run=greeting.run,
    )
