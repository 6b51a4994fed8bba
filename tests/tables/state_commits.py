"""A commit table in Delta whose commits name files of state, without a query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import keyrange
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.keyed_state.sorted_blocks import blocks_of, sorted_by_hash
from keyrange.keyed_state.state_files import StateFileWriter
from keyrange.keyed_state.variables import StateForm, timer_variables, variables_of
from keyrange.model.key_ranges import SPACE, hash_of
from keyrange.model.offsets import TopicPartition
from keyrange.model.watermarks import PartitionTime, Watermark
from keyrange.options.commits import CommitOptions
from keyrange.storage.directory import Directory

AT = TopicPartition("flights", 0)
AT_US = 1_780_000_000_000_000
NOW_MS = AT_US // 1000 + 60_000
FORM = StateForm((*variables_of({"n": keyrange.ValueState("n long")}), *timer_variables()))


class StateCommits:
    """The commits of a source whose batches change the state of keys."""

    def __init__(self, home: Path, source: str = "s") -> None:
        self.path, self.source = str(home / "commits"), source
        self.options = CommitOptions(
            table=self.path, dead_letter_table=f"{self.path}_dead_letters", group="g"
        )
        self.table = open_commit_table(self.options, source)
        self.files = Directory(f"{self.path}_state")
        self.form = FORM

    def commit(self, kind: CommitKind, batch_id: int = -1, **fields: Any) -> None:
        seq = self.table.known().seq + 1
        if kind is CommitKind.FENCE:
            fields |= {"group_seq": seq, "driver": self.source}
        run_id = self.table.known().run_id or "r"
        if kind is CommitKind.RESET:
            run_id = f"reset {seq}"
        of = ("g", self.source, "q", run_id, batch_id, NOW_MS)
        self.table.append(Commit(seq, kind, *of, **fields))

    def batch(
        self, batch_id: int, rows: list[dict[str, Any]], partition: TopicPartition = AT
    ) -> None:
        """A batch that has changed the state of keys."""
        seq, known = self.table.known().seq + 1, self.table.known()
        runs = {partition: (*known.runs.get(partition, ()), self.written(rows, seq))}
        times = {partition: PartitionTime(Watermark(AT_US, 0))}
        states = {partition: fresh("id", seq)}
        self.commit(CommitKind.BATCH, batch_id, states=states, runs=runs, times=times)

    def written(self, rows: list[dict[str, Any]], seq: int) -> StateRun:
        """A file of rows, as commit `seq` names it."""
        writer = StateFileWriter(self.files, self.source, self.form)
        rows = [{**row, "key_hash": hash_of(row["key"])} for row in rows]
        blocks = blocks_of(sorted_by_hash(pa.RecordBatch.from_pylist(rows, self.form.schema)))
        writer.add(AT, SPACE, seq, blocks)
        [(_, made)] = writer.finish()
        return made.committed(seq)
