"""A `keyrange.job` with state, event time and timers: what it does, and what its table holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from keyrange import EventTime, MapState, ProcessingTime, ValueState
from keyrange.individual_commits.each_batch import EachBatch
from keyrange.jobs.batch_writer import JobTables, WriteIndividually
from keyrange.jobs.data_source import data_source_of
from keyrange.jobs.definition import JobDefinition, JobFunctions, pickled
from keyrange.keyed_state.state_handles import microseconds
from keyrange.keyed_state.variables import timer_variables, variables_of
from keyrange.model.columns import COLUMNS
from keyrange.options import parse_options
from keyrange.storage.sink_table import SinkTable
from keyrange.work.job_time import JobTime, job_time
from keyrange.work.model.output_table import OutputTable
from simulation.topics import Place

DELAY_US = 3_000_000
_ROWS = (
    StructType()
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("generation", IntegerType())
    .add("key", StringType())
    .add("turn", LongType())
    .add("timer_us", LongType())
    .add("late", IntegerType())
)
_STATE = {
    # How often the key was worked on, and of which record each of its timers is.
    "turn": ValueState("n long"),
    "records": MapState("at long", "topic string, partition int, offset long, generation int"),
}


class Row(NamedTuple):
    """What is in the table of a record, or of its timer that was due at `timer_us`; `turn`: how
    often the key was worked on until then."""

    topic: str
    partition: int
    offset: int
    generation: int
    key: str
    turn: int
    timer_us: int | None
    late: int

    @property
    def place(self) -> Place:
        return Place(*self[:4])


def times_of(random: Random, offset: int, count: int) -> list[int]:
    """Event times of records in ms behind the first of all: not in order, and some of them late."""
    return [
        (offset + at) % 10_000 * 1000 + random.choice([0, 0, 0, 1500, -1500, -5000, -20_000])
        for at in range(count)
    ]


def timer_of(topic: str, offset: int, timestamp: datetime) -> datetime:
    """When the timer of a record is due: some at once. No two of partitions with one number are the
    same."""
    wait_s = (-2, 0, 1, 4, 10)[offset % 5]
    micros = offset % 400 * 2 + (topic == "a")
    return timestamp + timedelta(seconds=wait_s, microseconds=micros)


def is_bad(offset: int) -> bool:
    """Whether the timer of a record fails every time."""
    return offset % 11 == 3


def function(record: Any, state: Any) -> Any:
    """As `Schedule._work`: "!" fails always, "?" now and then."""
    from simulation.world import World

    world = World.now
    if world.is_slow and world.random.random() < 0.2:
        world.clock.sleep(world.random.choice([0.1, 1.0]))
    what, chance = record.value[:1], world.faults.chances.record_fails
    turn = (state.turn.get() or 0) + 1
    state.turn.update(turn)
    at = timer_of(record.topic, record.offset, record.timestamp)
    generation = int(record.value[1:])
    place = (record.topic, record.partition, record.offset, generation)
    state.records.update(microseconds(at), place)
    state.timers.set(at)
    if what == b"!" or (what == b"?" and world.random.random() < chance):
        raise ValueError("not this one")
    return (*place, record.key.decode(), turn, None, int(getattr(record, "late", False)))


def on_timer(key: bytes, at: datetime, state: Any) -> Any:
    from simulation.world import World

    world = World.now
    turn = (state.turn.get() or 0) + 1
    state.turn.update(turn)
    place = state.records.get(microseconds(at))
    if place is None:
        world.said.wrong.append(f"timer {at} of {key!r} has fired and was not set, or twice")
    state.records.remove(microseconds(at))
    offset = place[2]
    chance = world.faults.chances.record_fails
    if is_bad(offset) or (offset % 7 == 1 and world.random.random() < chance):
        raise ValueError("not this timer")
    return (*place, key.decode(), turn, microseconds(at), 0)


class FaultyTable(SinkTable):
    """A process may not survive the writes of its table."""

    def append(self, *given: Any, **named: Any) -> None:
        from simulation.world import World

        World.now.faults.at("the table")
        super().append(*given, **named)
        World.now.faults.at("the table, written")


class TimedJob:
    """The job of one simulation."""

    def __init__(self, home: Path, random: Random, shares: bool = False) -> None:
        """`shares`: the keys of topics a and t share their state, which stands under t."""
        self.shares = shares
        self.uri = str(home / "table")
        self._home = home
        late = random.choice(["drop", "deliver"])
        idle = random.choice([None, "10s"])
        by_event = EventTime(delay="3s", late=late, idle_after=idle, ahead="9h")
        self.time: JobTime = job_time(random.choice([by_event, by_event, ProcessingTime()]))

    def definition(self, manifests: str) -> JobDefinition:
        table = OutputTable(self.uri, _ROWS.json())
        return JobDefinition(
            (table,),
            _with_hidden(),
            "record",
            COLUMNS,
            pickled(JobFunctions(function, on_timer)),
            target_bytes=1 << 20,
            state=(*variables_of(_STATE), *timer_variables()),
            time=self.time,
            manifests=manifests,
        )

    def source(self, options: Mapping[str, str]) -> Any:
        return data_source_of(self.definition(options["verdictDirectory"]))(dict(options))

    def body(self, options: Mapping[str, str], checkpoint: str) -> Callable[[Any, int], None]:
        tables = JobTables(self.definition(options["verdictDirectory"]), {})
        parsed = parse_options(dict(options), "stream")
        write = WriteIndividually(tables)
        return EachBatch(write, parsed, checkpoint, looks_late=True, time=self.time)


def _with_hidden() -> str:
    from keyrange.individual_commits.reported_outcomes import HIDDEN_SPARK
    from keyrange.work.outcome_rows import HIDDEN

    return StructType([*_ROWS.fields]).add(HIDDEN, HIDDEN_SPARK).json()


class TimedSink:
    """The job's table, read from its log: what a batch of an application has added."""

    def __init__(self, uri: str) -> None:
        self._uri = Path(uri)
        self._versions = 0
        # Application, batch and row.
        self.all: list[tuple[str, int, Row]] = []

    @cached_property
    def _log(self) -> Path:
        return self._uri / "_delta_log"

    def read(self) -> list[tuple[str, int, Row]]:
        while (log := self._log / f"{self._versions:020}.json").exists():
            self._versions += 1
            entries = [json.loads(line) for line in log.read_text().splitlines()]
            said = [each["txn"] for each in entries if "txn" in each]
            files = [each["add"]["path"] for each in entries if "add" in each]
            if not files:
                continue
            # The other one is that of the driver.
            [application, batch] = next(
                [each["appId"], each["version"]] for each in said if "driver" not in each["appId"]
            )
            for name in files:
                rows = pq.ParquetFile(self._uri / name).read(use_threads=False).to_pylist()
                self.all += [(application, batch, Row(**row)) for row in rows]
        return self.all

    @property
    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Of the records, those of a key in their turns."""
        found = [(at, row) for at, (_, _, row) in enumerate(self.read()) if row.timer_us is None]
        found.sort(key=lambda each: each[1].turn)
        return iter([row for _, row in found])
