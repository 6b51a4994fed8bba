"""Drivers of a job, one of which waits between its look for a successor and its write, while
another one takes over. Tables, manifests and files of states are real; what tasks hand on is made
here, so no Spark is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import StructType

import keyrange
from keyrange.individual_commits import each_batch as individually
from keyrange.individual_commits import reported_outcomes
from keyrange.individual_commits.batch_in_checkpoint import Planned
from keyrange.individual_commits.batch_run import current
from keyrange.individual_commits.dead_letter_sink import LettersOfWholeBatches
from keyrange.individual_commits.each_batch import EachBatch
from keyrange.individual_commits.model.commit import Commit, CommitKind, Snapshot
from keyrange.individual_commits.table.commit_table import DeltaCommitTable, open_commit_table
from keyrange.individual_commits.table_output import BatchOutput, TableOutput
from keyrange.jobs import batch_writer
from keyrange.jobs.batch_writer import JobTables, WriteWhole
from keyrange.jobs.definition import JobDefinition
from keyrange.keyed_state.state_files import FileBlocks, StateFileWriter
from keyrange.keyed_state.variables import KEY_HASH, StateForm, variables_of
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.options import SourceOptions, parse_options
from keyrange.storage.data_files import DataFileWriter
from keyrange.storage.delta_store import DeltaStore
from keyrange.storage.directory import Directory
from keyrange.storage.sink_table import SinkTable
from keyrange.work.appended_files import HANDED_ON
from keyrange.work.model.output_table import OutputTable

PLACE: Final = TopicPartition("t", 0)
ROWS: Final = pa.schema([("at", pa.int64())])
SCHEMA: Final = StructType().add("at", "long")
FORM: Final = StateForm(variables_of({"seen": keyrange.ValueState("n long")}))
# Nobody looks at the frame of a verdict's rows.
NOTHING: Final[Any] = SimpleNamespace(isEmpty=lambda: True, sparkSession=None)
# Where a driver waits behind its look for a successor: before it looks at the log of the table, or
# has; the same of its commit. What else is written there, by drivers that begin, is no such step.
STEPS: Final[Mapping[str, tuple[Any, str, Callable[[Any], bool]]]] = {
    "append": (SinkTable, "append", lambda _: True),
    "transaction": (SinkTable, "_commit", lambda given: bool(given[2])),
    "commit": (DeltaCommitTable, "append", lambda given: given[1].kind is CommitKind.BATCH),
    "write": (DeltaStore, "_put", lambda _: True),
}
OF_OUTPUT: Final = ("append", "transaction")
OF_COMMIT: Final = ("commit", "write")


@dataclass
class Drivers:
    """A table below `home`, a path or URI, and those who write to it. A batch has four records."""

    home: str
    monkeypatch: pytest.MonkeyPatch
    keeps_state: bool = False
    # What happens while a driver of a checkpoint works on a batch.
    meanwhile: Callable[[str], None] = lambda _: None
    plans: dict[tuple[str, int], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def read(checkpoint: str, batch_id: int, *_: Any) -> Any:
            return self.plans[checkpoint, batch_id]

        self.table = f"{self.home}/table"
        self.monkeypatch.setattr(individually, "read_planned", read)
        self.monkeypatch.setattr(batch_writer, "read_offsets", lambda *at: [read(*at)])
        self.monkeypatch.setattr(
            reported_outcomes, "handed_on", lambda rows: rows() if callable(rows) else rows
        )

    def options(self, how: str) -> SourceOptions:
        given = {
            "kafka.bootstrap.servers": "h:9",
            "subscribe": "t",
            "commitMode": "individual",
            "commitTable": f"{self.home}/commits",
            "commitTable.onFreshStart": how,
        }
        return parse_options(given, "stream")

    def individual(self, checkpoint: str = "old") -> EachBatch:
        """A driver of a checkpoint; a new one resumes from what others have committed."""

        def work(_: Any, batch_id: int) -> None:
            run = current("the test")
            run.keeps_state = self.keeps_state
            at = self.plans[checkpoint, batch_id]

            def rows() -> Any:
                self.meanwhile(checkpoint)
                return self._handed_on(at, at.mark)

            run.batch = rows  # type: ignore[assignment]
            sink = SinkTable(self.table, ROWS, {})
            table = TableOutput(sink, SCHEMA.jsonValue(), self.table)
            run.write_verdict(BatchOutput({"": table}, None, {}))

        how = "fail" if checkpoint == "old" else "resume"
        return EachBatch(work, self.options(how), checkpoint, looks_late=True)

    def with_one_batch(self) -> EachBatch:
        """A driver that has committed batch 0, and has batch 1 planned."""
        found = self.individual()
        self.plan(0, 0)
        found(NOTHING, 0)
        self.plan(1, 4)
        return found

    def check_whole(self, step: str) -> None:
        """That of whole batches none is there twice, where another driver does two at a step."""
        late, other = self.whole(), self.whole()
        late(0)

        def go_on() -> None:
            other(1)
            other(2)

        self.before(step, go_on)
        late(1)
        assert self.rows() == list(range(12))

    def go_on(self, checkpoint: str) -> None:
        """Another driver does what batch 1 of the old checkpoint was to do, and four records more.
        Its batches begin with 1, and those of another checkpoint with 0."""
        other, first = self.individual(checkpoint), int(checkpoint == "old")
        for batch_id in (first, first + 1):
            if (checkpoint, batch_id) not in self.plans:
                self.plan(batch_id, 4 * (batch_id - first + 1), checkpoint)
            other(NOTHING, batch_id)

    def check(self, committed: Mapping[str, list[int]]) -> None:
        """That these batches are committed, and each of their records is there once."""
        count = 4 * sum(map(len, committed.values()))
        assert self.rows() == list(range(count)), self.rows()
        assert {each: self.committed(each) for each in committed} == committed
        if self.keeps_state:
            last = [checkpoint for checkpoint, batches in committed.items() if batches][-1]
            assert self.state_of(last) == count - 1

    def plan(self, batch_id: int, at: int, checkpoint: str = "old") -> None:
        """Batch `batch_id` of a checkpoint reads the four records at `at`."""
        source = f"source-{checkpoint}"
        known = self.known(checkpoint)
        begins = checkpoint != "old" and batch_id == 0
        resumes = ("source-old", self.known("old").seq) if begins else None
        mark = CommitMark(source, known.seq, resumes=resumes)
        start = Checkpoint({PLACE: at}, fresh=batch_id == 0)
        end = Checkpoint({PLACE: at + 4}, commits=mark)
        planned = Planned(f"query-{checkpoint}", batch_id, start, end, batch_id - 1)
        self.plans[checkpoint, batch_id] = planned

    def whole(self) -> Callable[[int], None]:
        """A driver that commits whole batches, of the one checkpoint."""
        output = OutputTable(self.table, SCHEMA.json())
        table = JobTables(JobDefinition((output,), "", "record", ("value",)), {})
        writer = WriteWhole(
            table, f"{self.home}/checkpoint", LettersOfWholeBatches(self.options("fail"))
        )

        def run(batch_id: int) -> None:
            at = batch_id * 4
            end = Checkpoint({PLACE: at + 4}, source_id="s")
            start = Checkpoint({PLACE: at})
            planned = Planned("query", batch_id, start, end, batch_id - 1)
            self.plans[writer.checkpoint, batch_id] = planned
            writer(lambda: self._handed_on(planned), batch_id)

        return run

    def _handed_on(self, planned: Any, mark: CommitMark | None = None) -> Any:
        first, until = planned.start.positions[PLACE], planned.end.positions[PLACE]
        numbers = list(range(first, until))
        output = DataFileWriter(self.table, ROWS)
        output.add(pa.record_batch({"at": numbers}, schema=ROWS))
        found: dict[str, list[Any]] = {member: [] for member in HANDED_ON}
        for each in output.finish():
            found["file"].append((each.name, each.size_bytes, each.rows, each.statistics, [], ""))
        found["done"].append(("t", 0, len(numbers)))
        if mark is not None and self.keeps_state:
            found["state_run"].append(self._state_run(mark, numbers))
        return found

    def _state_run(self, mark: CommitMark, numbers: list[int]) -> Any:
        """The states after a batch, which supersede all before it."""
        directory = Directory(self.options("fail").commits.state_directory)
        writer = StateFileWriter(directory, mark.source_id, FORM)
        rows = [{KEY_HASH: at, "key": b"k%d" % at, "seen": {"n": max(numbers)}} for at in range(9)]
        at, blocks = TopicPartition("t", 0), [pa.RecordBatch.from_pylist(rows, FORM.schema)]
        assert writer.add(at, SPACE, 0, blocks)
        [(_, made)] = writer.finish()
        return (*at, *made.flat())

    def rows(self) -> list[int]:
        return sorted(DeltaTable(self.table).to_pyarrow_table().column("at").to_pylist())

    def known(self, checkpoint: str = "old") -> Snapshot:
        return self._commits(checkpoint).known()

    def committed(self, checkpoint: str = "old") -> list[int]:
        """The batches that are committed, each as often as it is."""
        batches: list[Commit] = list(self._commits(checkpoint).history())
        return [each.batch_id for each in batches if each.kind is CommitKind.BATCH]

    def state_of(self, checkpoint: str) -> int:
        """The last record that the state of a source's keys has seen."""
        [run] = self.known(checkpoint).runs[PLACE]
        directory = Directory(self.options("fail").commits.state_directory)
        return int(FileBlocks(directory, run, FORM).block(0).to_pylist()[0]["seen"]["n"])

    def _commits(self, checkpoint: str) -> Any:
        return open_commit_table(self.options("fail").commits, f"source-{checkpoint}")

    def before(self, step: str, happens: Callable[[], None]) -> None:
        """Let the driver that comes first to a step wait there while something happens."""
        owner, name, is_it = STEPS[step]
        whole, waits = getattr(owner, name), True

        def waiting(*arguments: Any, **named: Any) -> Any:
            nonlocal waits
            if waits and is_it(arguments):
                waits = False
                happens()
            return whole(*arguments, **named)

        self.monkeypatch.setattr(owner, name, waiting)
