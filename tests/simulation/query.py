"""A streaming query as Spark runs it: one trigger after the other, by what its checkpoint says."""

from __future__ import annotations

import json
import pickle  # noqa: TID251
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keyrange
from keyrange.model.checkpoint import read_checkpoint
from keyrange.model.lost_offset_counts import Lost
from keyrange.source.data_source import KeyRangeDataSource
from simulation.frames import Frame, Session
from simulation.jobs import Jobs

if TYPE_CHECKING:
    from simulation.timed import TimedJob
    from simulation.world import World

_HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n'
Function = Callable[[Any, int], None]


class Checkpoint:
    """The directory that Spark keeps of a query."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("offsets", "commits"):
            (path / name).mkdir(parents=True)
        (path / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        # What is written, which spares reading it.
        self.ends: list[dict[str, Any]] = []
        self.finished = -1

    def plan(self, batch_id: int, end: Mapping[str, Any]) -> None:
        text = json.dumps(end)
        if batch_id != len(self.ends):
            raise ConcurrentRuns(batch_id)
        (self.path / "offsets" / str(batch_id)).write_text(_HEAD + text)
        self.ends.append(json.loads(text))

    def finish(self, batch_id: int) -> None:
        if batch_id != self.finished + 1:
            raise ConcurrentRuns(batch_id)
        (self.path / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        self.finished = batch_id


class ConcurrentRuns(Exception):
    """Another run of the query has written the same batch to the checkpoint."""


class Run:
    """One run of a query, from its start until it fails or is stopped. `body` is foreachBatch's."""

    def __init__(
        self,
        world: World,
        checkpoint: Checkpoint,
        options: Mapping[str, str],
        body: Function,
        job: TimedJob | None = None,
    ) -> None:
        self._world, self._checkpoint = world, checkpoint
        source: Any = KeyRangeDataSource(dict(options)) if job is None else job.source(options)
        self._reader: Any = source.streamReader(source.schema())
        # What the tasks have was pickled.
        self._task_reader = pickle.loads(pickle.dumps(self._reader))
        self._session = Session(Jobs(world).run)
        self._columns = source.schema().names
        self._function: Any = body
        if job is not None:
            self._function = job.body(options, str(checkpoint.path))
        elif options.get("commitMode") == "individual":
            self._function = keyrange.each_batch(body, options, str(checkpoint.path))
        self._may_lose = options["failOnDataLoss"] == "false"
        self._start: dict[str, Any] | None = None
        # What was logged as lost since a batch was planned.
        self._untold: list[Lost] = []

    def step(self) -> bool:
        """One trigger: the batch that is planned and not finished, or the next one; whether there
        was one."""
        with self._world.said.by(self._untold):
            return self._step()

    def _step(self) -> bool:
        checkpoint, faults = self._checkpoint, self._world.faults
        gone = set(self._world.topics.gone)
        batch_id = checkpoint.finished + 1
        start = checkpoint.ends[batch_id - 1] if batch_id else self._initial()
        if batch_id == len(checkpoint.ends):
            end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
            self._world.said.check_progress(self._reader.reportLatestOffset())
            if end == start:
                return False
            faults.at("the log of offsets")
            checkpoint.plan(batch_id, end)
            faults.at("the log of offsets, written")
            if batch_id:
                self._reader.commit(start)
        end = checkpoint.ends[batch_id]
        frame = self._frame(start, end)
        if self._may_lose:
            self._world.said.check_told(gone, read_checkpoint(start), read_checkpoint(end))
        self._function(frame, batch_id)
        faults.at("the log of commits")
        checkpoint.finish(batch_id)
        return True

    def stop(self) -> None:
        self._reader.stop()

    def _initial(self) -> dict[str, Any]:
        if self._start is None:
            self._start = json.loads(json.dumps(self._reader.initialOffset()))
        return self._start

    def _frame(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Frame:
        self._untold.clear()
        tasks = [pickle.dumps(each) for each in self._reader.partitions(start, end)]
        read = self._task_reader.read
        parts = [lambda task=task: iter(read(pickle.loads(task))) for task in tasks]
        return Frame(self._session, parts, self._columns)
