"""A task of a job in the executor: it reads, works on what it reads, and writes what comes of
that."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition

from keyrange.individual_commits.verdict_store import plan_attempt
from keyrange.jobs.definition import JobDefinition, JobFunctions, digest_of
from keyrange.jobs.job_outputs import arrow_schema, as_held, file_settings, outputs_of
from keyrange.jobs.newer_columns import followed
from keyrange.keyed_state.cache import copies_of, place_of
from keyrange.keyed_state.states_of_task import PartitionRuns, StateSettings, TaskStates
from keyrange.keyed_state.variables import StateForm
from keyrange.members.read_tasks import ReadTask
from keyrange.members.slot_directories import OWN, STANDBY, made_slots_directory, portion_of_process
from keyrange.model.key_ranges import SPACE, KeyRange, complement, merge
from keyrange.model.offsets import TopicPartition
from keyrange.model.watermarks import PartitionClock
from keyrange.options import SourceOptions
from keyrange.source.task_reader import read_rows
from keyrange.values.reading import reader_of
from keyrange.work.appended_files import Target, write_output
from keyrange.work.column_workers import own_columns
from keyrange.work.model.work_order import StateOrder, WorkOrder
from keyrange.work.outcome_rows import told_rows
from keyrange.work.record_alarm import RecordAlarm
from keyrange.work.task_context import Job, RowsOf, Task
from keyrange.work.task_run import run_task

_log = logging.getLogger(__name__)


class JobTask:
    """One task. What it is to know of its records comes with what it reads: with pinned members
    bit by bit."""

    def __init__(self, options: SourceOptions, definition: JobDefinition) -> None:
        self._options = options
        self._definition = definition
        self._orders: list[WorkOrder] = []
        self._task: Task | None = None
        self._states: TaskStates | None = None

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """What is handed to Spark. Raises what reading, the function and writing do."""
        with closing(read_rows(self._options, partition, self._begin)) as read:
            first = next(read, None)
            if first is None and not self._has_timers:
                return
            order = self._orders[0]
            with RecordAlarm(order.settings.has_limits) as alarm:
                self._task = Task(self._job(order), alarm)
                for each in self._orders[1:]:
                    self._task.begin(each.partitions)
                records = read if first is None else chain([first], read)
                worked_on = self._worked_on(self._task, records)
                yield from write_output(worked_on, self._target(order))
            if order.newer is not None:
                columns = json.dumps(self._definition.tables[0].columns)
                yield from told_rows(pa.schema([]), "columns", [(columns,)])

    @property
    def _has_timers(self) -> bool:
        """Whether there is something to do without records: timers fire, or those of keys that have
        waited for records wait no more."""
        works = (work for each in self._orders for work in each.partitions.values())
        return self._states is not None and (
            self._states.has_firing or any(work.again for work in works)
        )

    def _worked_on(self, task: Task, read: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        states = self._states
        yield from run_task(task, read, states)
        if states is not None:
            schema, made = task.job.schema, states.finish()
            told = {name: round(value) for name, value in asdict(states.figures).items()}
            yield from told_rows(schema, "state_run", [(*at, *run.flat()) for at, run in made])
            yield from told_rows(schema, "state_work", [told])

    def _begin(self, task: ReadTask) -> None:
        assert task.work is not None
        if task.work.newer is not None:
            self._definition = followed(self._definition, task.work.newer)
        if self._definition.state:
            self._begin_state(task, task.work)
        if self._task is None:
            self._orders.append(task.work)
        else:
            self._task.begin(task.work.partitions)

    def _begin_state(self, task: ReadTask, order: WorkOrder) -> None:
        assert order.state is not None
        if self._states is None:
            settings = state_settings(self._options, order)
            self._states = TaskStates(StateForm(self._definition.state), settings)
        self._states.begin(partitions_of(self._options, task, order.state))

    def _job(self, order: WorkOrder) -> Job:
        options, definition = self._options, self._definition
        outputs = tuple(
            RowsOf(
                *(arrow_schema(each.schema), each.keys, each.deletes, each.keeps),
                *(each.tombstones, each.name, each.is_staged or definition.holds),
            )
            for each in definition.tables
        ) + tuple(
            RowsOf(
                arrow_schema(each.schema),
                name=each.name,
                is_staged=definition.holds,
                topic=each.rows,
            )
            for each in definition.topics
        )
        columns = outputs[0].schema
        # Of a topic a value may stay one column.
        whole = columns.field("value").type if "value" in columns.names else None
        keys = outputs[0].keys if outputs[0].tombstones else ()
        functions = _functions_of(definition.function) if definition.function else None
        return Job(
            order.partitions,
            order.settings,
            definition.mode,
            columns,
            functions.function if functions else own_columns(columns.names, whole, keys),
            keeps_offsets=definition.holds,
            as_they_are=functions is None,
            nulls_first=options.key_ranges.nulls_first,
            is_whole=not options.commits.individual,
            values=reader_of(definition.forms, options.registry),
            outputs=outputs,
            on_timer=functions.on_timer if functions else None,
            time=definition.time,
            scope=options.commits.scope,
        )

    def _target(self, order: WorkOrder) -> Target:
        commits, definition = self._options.commits, self._definition
        attempt, outcomes = plan_attempt(definition.manifests, order.source_id, order.plan)
        storage = commits.revealed_storage()
        outputs = outputs_of(definition)
        if definition.holds:
            outputs = tuple(map(as_held, outputs))
        elif commits.scope.is_shared:
            outputs = tuple(replace(each, in_order=True) for each in outputs)
        return Target(outputs, outcomes, attempt, file_settings(definition), storage)


def _functions_of(data: bytes) -> JobFunctions:
    """The job's functions, unpickled once in this process."""
    key = digest_of(data)
    if key not in _functions:
        _functions.clear()
        _functions[key] = JobFunctions(*cloudpickle.loads(data))
    return _functions[key]


_functions: dict[bytes, JobFunctions] = {}


def state_settings(options: SourceOptions, order: WorkOrder) -> StateSettings:
    """Where the state of an order's source is."""
    assert order.state is not None
    return StateSettings(
        options.commits.state_directory,
        order.source_id,
        order.state.seq,
        order.state.time_ms,
        _copies(options, order),
        options.commits.revealed_storage(),
        order.state.timers_max,
        order.state.scope,
        order.state.retries,
    )


def _copies(options: SourceOptions, order: WorkOrder) -> Path | None:
    """Where this host keeps copies; None where there is no place for them."""
    try:
        # A copy may be the first that is put there: what it made itself others could enter.
        return copies_of(made_slots_directory(options.members.slot_directory), order.source_id)
    except OSError as failure:
        _log.warning(
            "state has no copy on this host: %s (slot.directory names a place for it)", failure
        )
        return None


def partitions_of(
    options: SourceOptions, task: ReadTask, order: StateOrder
) -> dict[TopicPartition, PartitionRuns]:
    """The key ranges of a task and the runs that hold their state, by the partition under which
    that stands."""
    spans: dict[TopicPartition, list[KeyRange]] = {}
    fires: dict[TopicPartition, list[KeyRange]] = {}
    # Records that come again are delivered without saying which key ranges are the task's.
    shared: set[TopicPartition] = set()
    for split in task.splits:
        home = order.scope.home(split.topic_partition)
        found = spans.setdefault(home, [])
        if split.placement is not None:
            found += split.placement.ranges()
            if split.fires:
                fires.setdefault(home, []).extend(split.placement.ranges())
        elif split.delivery is None:
            found.append(SPACE)
        else:
            shared.add(home)
    # Of a query that pins its ranges these keys stay on this host if its slot has them, or copies.
    is_own = not options.members.pinned or portion_of_process() in (OWN, STANDBY)
    return {
        at: PartitionRuns(
            tuple(merge(each)),
            order.runs.get(at, ()),
            is_own,
            place_of(order.topic_id or task.topic_ids.get(at.topic, ""), at),
            tuple(complement(each)) if at in shared else (),
            tuple(fires.get(at, ())),
            order.clocks.get(at, PartitionClock()),
        )
        for at, each in spans.items()
    }
