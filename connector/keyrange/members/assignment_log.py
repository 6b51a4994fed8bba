"""What a driver has written of its members, and goes on from: the process that plans a pinned
query, or the leader of a group of consumers.

Nothing that a driver decides counts for it before it is in the table. A row whose writing failed
may be there all the same, or come to be: so a run writes that very row again before it decides
anything else, which changes nothing where it is there.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from keyrange.members.model.assignment import Assignment, Owners, Since, unbroken
from keyrange.members.model.join_metadata import MemberMetadata
from keyrange.members.model.reassignment_timing import Membership, Timeouts
from keyrange.members.table.assignment_schema import Stored, StoredMember
from keyrange.members.table.assignments import AssignmentTable
from keyrange.options.members import MemberOptions

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sighting:
    """Who is there, by slot, and when each was last: ms of the clock on the wall, for people.
    `names` are of those that have another name than their slot."""

    there: Mapping[str, MemberMetadata]
    seen_ms: Mapping[str, int]
    names: Mapping[str, str] = field(default_factory=dict)


class AssignmentLog:
    """`stored` is the last row, `membership` the state that it holds and what was observed since.

    With a `run` it writes the rows of that one, and `settle` comes first. Without, drivers of the
    group take turns, and `follow` comes first.
    """

    def __init__(
        self, table: AssignmentTable, options: MemberOptions, group: str, run: str = ""
    ) -> None:
        self._table = table
        self._options = options
        self._group = group
        self._run = run
        self._takes_turns = not run
        self._timeouts = Timeouts(options.registration_timeout_ms, options.expansion_timeout_ms)
        self._expected = options.expected or None
        self._is_loaded = False
        self._pending: tuple[Stored, Membership] | None = None
        self.stored: Stored | None = None
        self.membership = self._nobody()

    @property
    def assignment(self) -> Assignment | None:
        return self.stored.assignment if self.stored is not None else None

    @property
    def standbys(self) -> Owners:
        return self.stored.standbys if self.stored is not None else {}

    @property
    def reached(self) -> str:
        """As `Stored` has it."""
        return self.stored.reached if self.stored is not None else ""

    def settle(self, passed_ms: int) -> None:
        """Read what the run before has written, once, and write the row that could not be written.
        Raises as the table does."""
        if not self._is_loaded:
            self.stored = self._table.last()
            if self.stored is not None:
                self.membership = self._read(self.stored.membership, passed_ms)
            self._is_loaded = True
        self._write_pending()

    def follow(self, table: AssignmentTable, passed_ms: int) -> Stored | None:
        """Go on from what any driver has written last; time begins to pass for it here. `table` is
        what the next row is written to, and has not been written to before. Raises as it does."""
        self._table, self._run, self._pending = table, uuid.uuid4().hex, None
        before, self.stored = self.stored, table.last()
        last = self.stored
        if last is not None and (before is None or last.run_id != before.run_id):
            self.membership = self._nobody()
            if last.membership:
                self.membership = self._read(last.membership, passed_ms)
        return last

    def forget(self) -> None:
        """What was decided is not written: it is decided anew, from what is."""
        self.stored, self.membership = None, self._nobody()

    def _nobody(self) -> Membership:
        return Membership(self._timeouts, self._expected)

    def _read(self, document: Mapping[str, Any], passed_ms: int) -> Membership:
        return Membership.from_json(document, self._timeouts, passed_ms, self._expected)

    def take_commands(
        self, passed_ms: int, removed: Callable[[str], None] = lambda _: None
    ) -> int | None:
        """Do what people asked for; returns the number of the last command, None without one.
        `removed` is called for each member that is to be taken out."""
        taken: int | None = None
        for command in self._table.commands(self._commands_until):
            if command.action == "remove":
                self.membership.remove(command.name, passed_ms)
                removed(command.name)
            elif command.action == "scale":
                self.membership.scale(command.members, passed_ms)
            else:
                self.membership.force(passed_ms)
            taken = command.number
            _log.info("%s, as %s asked for", command.text, command.who)
        return taken

    @property
    def _commands_until(self) -> int:
        return self.stored.commands_until if self.stored is not None else 0

    def write(
        self,
        reason: str,
        assignment: Assignment | None,
        membership: Membership,
        sighting: Sighting,
        at_ms: int,
        passed_ms: int,
        commands_until: int | None = None,
        reached: str | None = None,
        standbys: Owners | None = None,
    ) -> None:
        """Append a row; what it says holds from then on. What is None is as before. Raises
        as the table does, and nothing of it holds before `settle` has written it."""
        before = self.stored
        known = before.members if before is not None else ()
        row = Stored(
            seq=before.seq + 1 if before is not None else 1,
            group=self._group,
            run_id=self._run,
            at_ms=at_ms,
            reason=reason,
            assignment=assignment,
            since=self._since(assignment),
            standbys=self.standbys if standbys is None else standbys,
            membership=membership.to_json(),
            members=stored_members(membership, sighting, known, at_ms - passed_ms),
            member_group=self._options.kafka_group,
            commands_until=self._commands_until if commands_until is None else commands_until,
            reached=reached if reached is not None else self.reached,
        )
        self._pending = (row, membership)
        self._write_pending()
        self._table.maintain()

    def _since(self, assignment: Assignment | None) -> Mapping[str, Since]:
        # Where drivers take turns no run lasts that it could be said of.
        if assignment is None or self._takes_turns:
            return {}
        since = self.stored.since if self.stored is not None else {}
        return unbroken(self.assignment, since, assignment, self._run)

    def _write_pending(self) -> None:
        if self._pending is None:
            return
        row, membership = self._pending
        self._table.append(row)
        self.stored, self.membership, self._pending = row, membership, None


def stored_members(
    membership: Membership, sighting: Sighting, before: Sequence[StoredMember], shift_ms: int
) -> tuple[StoredMember, ...]:
    """The members as a row has them; `shift_ms` is what the clock on the wall is ahead of the one
    that timeouts are counted by."""
    known = {each.slot: each for each in before}
    rows: list[StoredMember] = []
    for name, state in sorted(membership.members.items()):
        row = StoredMember(
            name=sighting.names.get(name, known[name].name if name in known else name),
            slot=name,
            is_static=state.is_static,
            state=str(state.standing),
            since_ms=max(state.since_ms + shift_ms, 0),
            seen_ms=sighting.seen_ms.get(name, known[name].seen_ms if name in known else 0),
            cores=state.capacity,
        )
        seen = sighting.there.get(name) or known.get(name)
        if seen is not None:
            row = replace(row, host=seen.host, executor=seen.executor, source=seen.source)
            row = replace(row, rack=seen.rack)
        rows.append(row)
    return tuple(rows)
