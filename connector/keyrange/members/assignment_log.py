"""What a run has written of its members, and goes on from.

Nothing that a run decides counts for it before it is in the table. A row whose writing failed may
be there all the same, or come to be: so that very row is written again before anything else is
decided, which changes nothing where it is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from keyrange.members.model.assignment import Assignment
from keyrange.members.model.join_metadata import MemberMetadata
from keyrange.members.model.membership import Membership, Timeouts
from keyrange.members.model.unbroken import Since, unbroken
from keyrange.members.table.assignment_rows import Stored, StoredMember
from keyrange.members.table.assignments import AssignmentTable
from keyrange.options.members import MemberOptions


@dataclass(frozen=True, slots=True)
class Sighting:
    """Who is there, by slot, and when each was last: ms of the clock on the wall, for people."""

    there: Mapping[str, MemberMetadata]
    seen_ms: Mapping[str, int]


class AssignmentLog:
    """The rows of one run: `stored` is the last one, `membership` the state that it holds and what
    was observed since."""

    def __init__(self, table: AssignmentTable, options: MemberOptions, run: str) -> None:
        self._table = table
        self._options = options
        self._run = run
        self._timeouts = Timeouts(options.registration_timeout_ms, options.expansion_timeout_ms)
        self._is_loaded = False
        self._pending: tuple[Stored, Membership] | None = None
        self.stored: Stored | None = None
        self.membership = Membership(self._timeouts)

    @property
    def assignment(self) -> Assignment | None:
        return self.stored.assignment if self.stored is not None else None

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
                document = self.stored.membership
                self.membership = Membership.from_json(document, self._timeouts, passed_ms)
            self._is_loaded = True
        self._write_pending()

    def write(
        self,
        reason: str,
        assignment: Assignment | None,
        membership: Membership,
        members: Sequence[StoredMember],
        at_ms: int,
        commands_until: int | None = None,
        reached: str | None = None,
    ) -> None:
        """Append a row; what it says holds from then on. What is None is as before. Raises
        as the table does, and nothing of it holds before `settle` has written it."""
        before = self.stored
        known = before.commands_until if before is not None else 0
        row = Stored(
            seq=before.seq + 1 if before is not None else 1,
            group=self._options.group,
            run_id=self._run,
            at_ms=at_ms,
            reason=reason,
            assignment=assignment,
            since=self._since(assignment),
            membership=membership.to_json(),
            members=tuple(members),
            member_group=self._options.kafka_group,
            commands_until=commands_until if commands_until is not None else known,
            reached=reached if reached is not None else self.reached,
        )
        self._pending = (row, membership)
        self._write_pending()
        self._table.maintain()

    def _since(self, assignment: Assignment | None) -> Mapping[str, Since]:
        if assignment is None:
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
    membership: Membership,
    sighting: Sighting,
    before: Sequence[StoredMember],
    shift_ms: int,
) -> tuple[StoredMember, ...]:
    """The members as a row has them; `shift_ms` is what the clock on the wall is ahead of the one
    that timeouts are counted by."""
    known = {each.slot: each for each in before}
    rows: list[StoredMember] = []
    for name, state in sorted(membership.members.items()):
        row = StoredMember(
            name=name,
            slot=name,
            is_static=state.is_static,
            state=str(state.standing),
            since_ms=max(state.since_ms + shift_ms, 0),
            seen_ms=sighting.seen_ms.get(name, known[name].seen_ms if name in known else 0),
            cores=state.capacity,
        )
        place = sighting.there.get(name) or known.get(name)
        if place is not None:
            row = replace(row, host=place.host, executor=place.executor, source=place.source)
        rows.append(row)
    return tuple(rows)
