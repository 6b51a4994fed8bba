"""What runs in the executors: a task's splits to Arrow batches.

Connections are kept from task to task in the worker process, which Spark reuses.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from keyrange.members.read_tasks import BoundTask, ReadTask
from keyrange.model.columns import COLUMNS, PLACE
from keyrange.model.offset_splits import Split
from keyrange.options import KeyRangeOptions, SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.kafka.cluster import Cluster
    from keyrange.kafka.cluster_view import ClusterView
    from keyrange.kafka.fetching.fetch import SplitReader
    from keyrange.options.kafka_properties import ClientSettings
    from keyrange.ranges.sharing.shared_directory import ExecutorDirectory

_log = logging.getLogger(__name__)


def read_task(options: SourceOptions, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """What a task hands to Spark: its rows, or what the function of option mapInArrow makes of
    them."""
    rows = read_rows(options, task) if not options.forms.columns else _typed(options, task)
    if options.map_in_arrow is None:
        return rows
    from keyrange.source.map_in_arrow import map_in_arrow

    return map_in_arrow(options.map_in_arrow, rows)


def _typed(options: SourceOptions, task: InputPartition) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a task with their keys and values read. Raises BAD_VALUE."""
    from keyrange.values.reading import ValueReader

    # What a bad value is named by is read too.
    needed = {*options.chosen_columns, *PLACE} if options.forms.bad == "fail" else set()
    columns = tuple(name for name in COLUMNS if name in needed) or options.columns
    reader = ValueReader(options.forms, options.registry)
    left_out = needed.difference(options.chosen_columns)
    for batch in read_rows(replace(options, columns=columns), task):
        read = reader.read_all(batch)
        yield read.drop_columns([*left_out]) if left_out else read


def read_rows(
    options: SourceOptions,
    task: InputPartition,
    begin: Callable[[ReadTask], None] = lambda _: None,
) -> Generator[pa.RecordBatch, None, None]:
    """The records of a task. `begin` is told what is read next, before its first record comes.

    Spark hands a plain InputPartition where there is nothing to read.
    """

    def read(each: ReadTask) -> Generator[pa.RecordBatch, None, None]:
        begin(each)
        yield from _read_splits(options, each)

    if isinstance(task, BoundTask):
        from keyrange.members.executor_member import read_bound

        yield from read_bound(options, task, read)
    elif isinstance(task, ReadTask) and task.greeting is not None:
        from keyrange.members.executor_member import greeted

        yield from greeted(options, task.greeting, read(task))
    elif isinstance(task, ReadTask):
        yield from read(task)
    _freeze_modules()


@cache
def _freeze_modules() -> None:
    """Once for each process: Spark's worker collects garbage behind each task (pyspark/daemon.py),
    which takes 80 ms of CPU to look over modules that stay as long as the process does."""
    gc.collect()
    gc.freeze()


def _read_splits(options: SourceOptions, task: ReadTask) -> Generator[pa.RecordBatch, None, None]:
    # Where timers fire there is nothing to read.
    splits = [each for each in task.splits if not each.fires]
    if not splits:
        return
    # Imported here so that planning a query does not load them.
    from keyrange.kafka.fetching.fetch import SplitReader
    from keyrange.kafka.fetching.read_settings import read_settings
    from keyrange.wire.columns import joined

    cluster = _kept_cluster(_client(options), os.getpid())
    reader = SplitReader(cluster, _view(task), read_settings(options))
    keys = options.key_ranges
    individual = options.commits.individual
    if keys.split_by != "keyRange" and keys.keys is None and not individual:
        yield from reader.read(splits)
    else:
        # Of a chunk that others read too a few rows may be left.
        yield from joined(_read_ranges(reader, splits, keys), options.max_batch_rows // 4)


def _read_ranges(
    reader: SplitReader, splits: Sequence[Split], keys: KeyRangeOptions
) -> Iterator[pa.RecordBatch]:
    """Splits in their order: those that are shared on this host one by one, neighbours that are not
    together."""
    directory = _executor_directory(keys) if any(split.shared for split in splits) else None
    if directory is None:
        yield from reader.read(splits)
        return
    from keyrange.ranges.sharing.shared_reader import RangeReader

    for is_shared, run in groupby(splits, key=lambda split: bool(split.shared)):
        if not is_shared:
            yield from reader.read(list(run))
            continue
        for split in run:
            yield from RangeReader(reader, directory, split, keys.keep_values).read()


def _executor_directory(keys: KeyRangeOptions) -> ExecutorDirectory | None:
    from keyrange.ranges.sharing.shared_directory import ExecutorDirectory, usual_settings

    try:
        return ExecutorDirectory(usual_settings(keys.memory_bytes, keys.spill_bytes))
    except OSError as failure:
        _log.warning("tasks on this host share nothing, each reads for itself: %s", failure)
        return None


def _client(options: SourceOptions) -> ClientSettings:
    """The client's settings with the rack of this executor."""
    if not options.rack_variable:
        return options.client
    rack = os.environ.get(options.rack_variable, "")
    if not rack:
        _say_no_rack(options.rack_variable)
    return replace(options.client, client_rack=rack)


@cache
def _say_no_rack(variable: str) -> None:
    """Once for each process."""
    _log.warning(
        "option 'client.rack.env': this executor has no variable %s, and reads from leaders in "
        "whichever rack they are",
        variable,
    )


# Queries with a client id or a password of their own come and go while Spark reuses a worker.
@lru_cache(maxsize=8)
def _kept_cluster(settings: ClientSettings, process: int) -> Cluster:  # noqa: ARG001
    """A process's connections to a cluster; a forked child does not use its parent's sockets. Those
    that are not kept any more close with the last task that reads by them."""
    from keyrange.kafka.cluster import Cluster

    return Cluster(settings)


def _view(task: ReadTask) -> ClusterView:
    from keyrange.kafka.cluster_view import Broker, ClusterView, Leader, Topic

    leaders: dict[str, dict[int, Leader]] = {}
    for topic, partition, node_id in task.leaders:
        leaders.setdefault(topic, {})[partition] = Leader(node_id, -1)
    return ClusterView(
        cluster_id="",
        brokers={node_id: Broker(node_id, host, port) for node_id, host, port in task.brokers},
        topics={
            topic: Topic(task.topic_ids.get(topic, ""), numbers)
            for topic, numbers in leaders.items()
        },
    )
