"""The executor's side of members: the member process that belongs to it, its slot, and what its
bound tasks read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

from keyrange.core.members.binding import NO_SLOT
from keyrange.errors import KeyrangeError, error
from keyrange.members.launch import ensure_member, executor_directory, member_directory
from keyrange.members.names import name_settings
from keyrange.members.setup import MemberSetup, executor_process
from keyrange.members.status import TaskProgress
from keyrange.options import SourceOptions
from keyrange.spark.binding.caller import Caller, greet
from keyrange.spark.binding.messages import BadLine, Greeting
from keyrange.spark.executor import Executor, this_executor
from keyrange.spark.read import BoundTask, ReadTask, read_bound_task
from keyrange.spark.slots import note_slot, noted_epoch, query_of_task, slots_directory

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

Rows = Iterator["pa.RecordBatch"]
# How long a greeting waits for the executor to have a slot.
_GREETING_S: Final = 60.0
_GREETING_PAUSE_S: Final = 0.5
_FENCED: Final = "FENCED"


def greeted(options: SourceOptions, greeting: Greeting, rows: Rows) -> Rows:
    """The rows of a task that is not bound. Meanwhile its executor gets its member, and the
    planning process hears from it; neither is a condition for the rows.

    Raises DYNAMIC_ALLOCATION where static names were asked for, and Spark takes executors away.
    """
    member = _Member(options, greeting)
    if greeting not in _greeting:
        _greeting.add(greeting)
        Thread(target=member.greet, name="keyrange-greeting", daemon=True).start()
    yield from _with_progress(member, rows)


# What this process has greeted, or is about to.
_greeting: Final[set[Greeting]] = set()


def read_bound(options: SourceOptions, task: BoundTask, read: Callable[[ReadTask], Rows]) -> Rows:
    """The rows of a bound task: of its slot's portions first.

    Raises what `Caller.portions` does, and DUPLICATE_STATIC_MEMBER where this executor has lost its
    name to another.
    """
    member = _Member(options, task.greeting)
    slot = member.slot()
    caller = Caller(task.greeting.address, task.plan, task.number)
    if slot != NO_SLOT:
        member.note(slot, task.epoch, caller)
    portions = (row for each in caller.portions(slot) for row in read(read_bound_task(each)))
    yield from _with_progress(member, portions)


def _with_progress(member: _Member, rows: Rows) -> Generator[pa.RecordBatch, None, None]:
    """Rows, while the member is told that they come: it gives its name up where a task stops."""
    with TaskProgress(member.directory) as progress:
        for batch in rows:
            yield batch
            progress.yielded()


class _Member:
    """The member of this executor, as its tasks see it."""

    def __init__(self, options: SourceOptions, greeting: Greeting) -> None:
        self._greeting = greeting
        self._options = options.members
        self._owner = executor_process()
        self._executor = this_executor(self._owner.pid, _property("spark.master"))
        self._setup = _setup(options, greeting, self._executor)
        self._executor_directory = executor_directory()

    @property
    def directory(self) -> Path:
        return member_directory(self._setup, self._executor_directory)

    def slot(self) -> str:
        """The slot that this executor has, NO_SLOT while it has none."""
        status = ensure_member(self._setup, self._executor_directory, self._owner)
        if status is None:
            return NO_SLOT
        if status.state == _FENCED:
            raise error(
                "DUPLICATE_STATIC_MEMBER",
                f"this executor is not {status.name} any more: {status.failure}",
            )
        return status.name if status.joined else NO_SLOT

    def greet(self) -> None:
        """Tell the planning process of this executor, as soon as it has a slot."""
        until = time.monotonic() + _GREETING_S
        try:
            slot = self.slot()
            while slot == NO_SLOT and time.monotonic() < until:
                time.sleep(_GREETING_PAUSE_S)
                slot = self.slot()
            greet(self._greeting.address, slot, self._executor.host, self._executor.id)
        except (KeyrangeError, BadLine, OSError) as failure:
            _log.warning("this executor's key ranges do not stay with it: %s", failure)
            _greeting.discard(self._greeting)

    def note(self, slot: str, epoch: int, caller: Caller) -> None:
        """Say in the executor which ranges its slot has. State has to do without where that fails,
        rows not."""
        query, group = query_of_task(), self._options.group
        if noted_epoch(query, group, self._executor_directory, slot) >= epoch:
            return
        try:
            ranges = caller.ranges(slot, epoch)
            base = slots_directory(self._options.slot_directory)
            note_slot(query, slot, group, epoch, ranges, base, self._executor_directory)
        except OSError as failure:
            _log.warning("slot %s has no directory: %s", slot, failure)


def _setup(options: SourceOptions, greeting: Greeting, executor: Executor) -> MemberSetup:
    members = options.members
    policy = members.names
    if _property("spark.dynamicAllocation.enabled") == "true":
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
        cores=float(executor.cores),
        executor=executor.id,
        run=greeting.run,
    )


def _property(name: str) -> str | None:
    """A setting of the session, as Spark hands it to its tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.getLocalProperty(name) if context is not None else None
