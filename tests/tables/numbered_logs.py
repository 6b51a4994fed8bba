"""The tables that stand on a numbered log, behind one face, for the tests that all of them pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from keyrange.individual_commits.table import commit_schema, commit_table
from keyrange.members.table import assignment_schema, assignments
from keyrange.storage.table_store import Layout
from samples import member_samples
from tables import delta_commits
from tables.commit_contract import SOURCE, batch, fence

Call = Callable[[Any], object]


@dataclass(frozen=True)
class Subject:
    """One log. `entry` makes entry `seq` of run 1, `begin` one by which a run begins there.

    `of_another_log` is an entry of another log of the same table. `looks` and `writes` are the
    calls that see what happened to the table; `writes` append entry 4, or to another log. `fenced`
    is the condition of a writer that was replaced.
    """

    name: str
    layout: Layout
    app_id: str
    fenced: str
    noun: str
    open: Callable[..., Any]
    last: Callable[[Any], int]
    entry: Callable[[int], Any]
    begin: Callable[[int, str], Any]
    rows_of: Callable[[Any], Any]
    of_another_log: Any
    looks: Sequence[Call]
    writes: Sequence[Call]
    maintain: Call

    @property
    def conditions(self) -> frozenset[str]:
        return frozenset({*asdict(self.layout.conditions).values(), self.fenced})

    def entries(self, count: int) -> list[Any]:
        return [self.entry(seq) for seq in range(1, count + 1)]

    def fill(self, path: Path, count: int = 3) -> list[Any]:
        """A table with so many entries, and no handle of it left."""
        entries, table = self.entries(count), self.open(path)
        for each in entries:
            table.append(each)
        return entries


def commits(source_id: str = SOURCE) -> Subject:
    def entry(seq: int) -> Any:
        if seq == 1:
            return fence(1, source_id=source_id)
        return batch(seq, source_id=source_id)

    return Subject(
        name="commits",
        layout=commit_table.LAYOUT,
        app_id=f"keyrange/{source_id}/commits",
        fenced="COMMITS_FENCED",
        noun="commit",
        open=lambda path, **storage: delta_commits.table_at(path, source_id, **storage),
        last=lambda table: table.known().seq,
        entry=entry,
        begin=lambda seq, run_id: fence(seq, run_id, source_id),
        rows_of=commit_schema.rows_of,
        of_another_log=fence(1, source_id="another"),
        looks=(lambda table: table.known(),),
        writes=(lambda table: table.append(entry(4)),),
        maintain=lambda table: table.maintain(),
    )


def _epoch(seq: int) -> int:
    return max(seq - 1, 1)


def _last_row(table: assignments.AssignmentTable) -> int:
    last = table.last()
    return last.seq if last is not None else 0


COMMITS: Final = commits()
ASSIGNMENTS: Final = Subject(
    name="assignments",
    layout=assignments.LAYOUT,
    app_id="keyrange/members/assignment",
    fenced="ASSIGNMENT_CHANGED",
    noun="row",
    open=member_samples.table_at,
    last=_last_row,
    entry=lambda seq: member_samples.stored(seq, _epoch(seq)),
    begin=lambda seq, run_id: member_samples.stored(seq, _epoch(seq), run_id),
    rows_of=assignment_schema.rows_of,
    of_another_log=member_samples.command(number=1),
    looks=(lambda table: table.last(), lambda table: table.commands()),
    writes=(
        lambda table: table.append(member_samples.stored(4, 3)),
        lambda table: table.append_command(member_samples.command()),
    ),
    maintain=lambda table: table.maintain(),
)
SUBJECTS: Final = (COMMITS, ASSIGNMENTS)
