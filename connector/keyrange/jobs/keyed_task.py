"""What a task of a job with state is told of it, and what it tells."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from keyrange.kafka.model.offsets import TopicPartition
from keyrange.keyed_state.cache import copies_of, place_of
from keyrange.keyed_state.model.figures import StateFigures
from keyrange.keyed_state.model.state_runs import MadeRun
from keyrange.keyed_state.states_of_task import PartitionRuns, StateSettings
from keyrange.members.slot_directories import made_slots_directory, portion_of_process
from keyrange.options import SourceOptions
from keyrange.ranges.model.key_ranges import SPACE, KeyRange, complement, merge
from keyrange.ranges.read_tasks import ReadTask
from keyrange.work.model.work_order import StateOrder, WorkOrder
from keyrange.work.outcome_rows import member_rows

_log = logging.getLogger(__name__)


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
    """The key ranges of a task and the runs that hold their state."""
    spans: dict[TopicPartition, list[KeyRange]] = {}
    # Records that come again are delivered without saying which key ranges are the task's.
    shared: set[TopicPartition] = set()
    for split in task.splits:
        found = spans.setdefault(split.topic_partition, [])
        if split.placement is not None:
            found += split.placement.ranges()
        elif split.delivery is None:
            found.append(SPACE)
        else:
            shared.add(split.topic_partition)
    # Of a query that pins its ranges these keys stay on this host if its slot has them.
    is_own = not options.members.pinned or portion_of_process() == "own"
    return {
        at: PartitionRuns(
            tuple(merge(each)),
            order.runs.get(at, ()),
            is_own,
            place_of(task.topic_ids.get(at.topic, ""), at),
            tuple(complement(each)) if at in shared else (),
        )
        for at, each in spans.items()
    }


def state_rows(
    made: Sequence[tuple[TopicPartition, MadeRun]], figures: StateFigures
) -> Iterator[pa.StructArray]:
    """What a task hands to the driver of states."""
    if made:
        yield member_rows("state_run", list(_run_rows(made)))
    told = {name: round(value) for name, value in asdict(figures).items()}
    yield member_rows("state_work", [told])


def _run_rows(made: Iterable[tuple[TopicPartition, MadeRun]]) -> Iterator[dict[str, str | int]]:
    for partition, run in made:
        yield {
            "topic": partition.topic,
            "partition": partition.partition,
            "file": run.file,
            "first_group": run.groups[0],
            "until_group": run.groups[1],
            "from_hash": run.span.from_hash,
            "last_hash": run.span.until_hash - 1,
            "from_seq": run.from_seq,
            "rows": run.rows,
            "size_bytes": run.size_bytes,
        }
