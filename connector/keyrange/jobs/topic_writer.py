"""Rows of any DataFrame to a topic, exactly once: what `foreachBatch` is given.

As with a job, tasks put the rows of a batch into files, a manifest says which files count, and then
senders send these. A batch that runs again finds its manifest, and is not computed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from os import PathLike, fspath
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from keyrange.errors import error, invalid_options
from keyrange.individual_commits import reported_outcomes
from keyrange.individual_commits.batch_in_checkpoint import Planned, check_query
from keyrange.individual_commits.model.verdict_manifest import (
    Manifest,
    check_output,
    of_tasks,
    planned,
)
from keyrange.individual_commits.reported_outcomes import HIDDEN_SPARK
from keyrange.individual_commits.topic_output import TopicOutput
from keyrange.individual_commits.verdict_store import VerdictStore, plan_attempt
from keyrange.jobs.query_table import (
    check_places,
    manifests_of_whole_batches,
    store_of_whole_batches,
)
from keyrange.jobs.topic import PreparedTopic, Topic, prepared_topic
from keyrange.model.checkpoint import Checkpoint
from keyrange.options import SourceOptions
from keyrange.options.commits import path_mistake
from keyrange.options.option import OptionValue, texts_of
from keyrange.options.producer_properties import PREFIX
from keyrange.options.value_parsers import Violations
from keyrange.sending.open_senders import OpenSenders
from keyrange.storage.checkpoint_files import unreadable
from keyrange.storage.directory import Directory
from keyrange.storage.model.sink_driver import application_of
from keyrange.storage.object_store import FAILURES
from keyrange.work.appended_files import Output, Target, write_output
from keyrange.work.outcome_rows import HIDDEN, changed_rows
from keyrange.work.topic_rows import TopicRows

# What stands in the place of a source's id, of which rows of a DataFrame may have several.
_SOURCE: Final = "frames"
_NOWHERE: Final = Checkpoint({})
_Kept = TypeVar("_Kept")


def topic_writer(
    topic: str | Topic,
    checkpoint: str | PathLike[str],
    options: Mapping[str, OptionValue] | None = None,
    *,
    storage: Mapping[str, str] | None = None,
) -> TopicWriter:
    """What `foreachBatch` is given so that the rows of each batch are in a topic once:

        frame.writeStream.foreachBatch(keyrange.topic_writer("prices", checkpoint, options))

    `checkpoint` is the query's checkpointLocation, `options` are the producer's properties
    (`kafka.bootstrap.servers`, ...), which a `keyrange.Topic` has itself. Rows are as for that.
    `storage`: settings of the object store with the checkpoint. Raises INVALID_OPTIONS.
    """
    if isinstance(topic, str):
        topic = Topic(topic, options)
    elif options:
        raise invalid_options("options are given beside a keyrange.Topic, which has its own")
    wrong = topic.mistakes("topic")
    if (mistake := path_mistake(fspath(checkpoint))) is not None:
        wrong.append(f"checkpoint {mistake}")
    violations = Violations()
    violations.messages += wrong
    texts = texts_of({} if topic.options is None else topic.options, violations)
    if f"{PREFIX}bootstrap.servers" not in texts:
        violations.add(f"{PREFIX}bootstrap.servers", "must be specified: no source says it here")
    topic.parsed(texts, SourceOptions(), violations)
    violations.check()
    return TopicWriter(topic, fspath(checkpoint), dict(storage or {}))


@dataclass(frozen=True, eq=False)
class TopicWriter:
    """Called by Spark with each batch."""

    topic: Topic
    checkpoint: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        try:
            self._write(batch, batch_id)
        except BaseException:
            # Started again with this object it is another run.
            self._open.clear()
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _open(self) -> dict[str, Any]:
        """What is kept from one batch to the next."""
        return {}

    def _kept(self, name: str, make: Callable[[], _Kept]) -> _Kept:
        if name not in self._open:
            self._open[name] = make()
        found: _Kept = self._open[name]
        return found

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        at, plan = self._planned(batch_id)
        check_query(batch.sparkSession, at, self.checkpoint)
        store = self._kept("store", self._store)
        prepared = self._kept("topic", partial(self._prepared, batch.schema))
        output = TopicOutput(
            "",
            json.loads(prepared.output.schema),
            self._kept("senders", partial(OpenSenders, prepared.address)),
            prepared.senders,
            batch,
            self.storage,
            prepared.if_forgotten,
        )
        application = application_of(at.query_id, _SOURCE)
        if self._open.get("batch") != batch_id - 1:
            before = store.manifest_of(batch_id - 1) if batch_id else None
            check_places(before, {}, {}, {"": prepared.address})
        manifest = store.manifest(batch_id, _NOWHERE, _NOWHERE)
        is_made = manifest is None
        if manifest is None:
            output.mark(application, at, None)
            manifest = self._publish(store, output, prepared, batch, batch_id, plan)
        check_output(manifest, {}, ("",), {"": output.as_told()})
        if manifest.terms != {"plan": plan}:
            message = f"the rows of batch {batch_id} are of other offsets"
            raise error("CHECKPOINT_BEHIND", message, path=self.checkpoint)
        output.write(store, manifest, application, at, is_made)
        store.remove_old(lambda other: other < batch_id, manifest)
        self._open["batch"] = batch_id

    def _publish(
        self,
        store: VerdictStore,
        output: TopicOutput,
        prepared: PreparedTopic,
        batch: DataFrame,
        batch_id: int,
        plan: str,
    ) -> Manifest:
        attempt, outcomes = plan_attempt(
            manifests_of_whole_batches(self.checkpoint), _SOURCE, f"{batch_id}-{plan}"
        )
        schema = to_arrow_schema(batch.schema, timezone="UTC")
        columns = prepared.output.rows.schema(schema)
        target = Target(
            (Output("", columns, topic=prepared.address),), outcomes, attempt, storage=self.storage
        )
        rows = batch.mapInArrow(
            _staging(target, prepared.output.rows), StructType([]).add(HIDDEN, HIDDEN_SPARK)
        )
        with store.writing():
            found = reported_outcomes.handed_on(rows)
        start, end = planned(_NOWHERE, _NOWHERE)
        made = Manifest(
            batch_id,
            **of_tasks(found),
            start=start,
            end=end,
            topics={"": output.as_told()},
            terms={"plan": plan},
        )
        return store.publish(made, _NOWHERE, _NOWHERE)

    def _planned(self, batch_id: int) -> tuple[Planned, str]:
        """The batch, and what tells its offsets from those of others."""
        directory = Directory(self.checkpoint, self.storage)
        try:
            query_id = json.loads(directory.read("metadata"))["id"]
            offsets = directory.read(f"offsets/{batch_id}")
        except (*FAILURES, KeyError, TypeError) as failure:
            what = f"batch {batch_id} cannot be read from the checkpoint"
            raise unreadable(self.checkpoint, failure, what) from None
        # The lines before say when it was planned.
        sources = offsets.split(b"\n")[2:]
        plan = hashlib.sha256(b"\n".join(sources)).hexdigest()[:16]
        return Planned(query_id, batch_id, _NOWHERE, _NOWHERE, batch_id - 1), plan

    def _store(self) -> VerdictStore:
        return store_of_whole_batches(self.checkpoint, _SOURCE, self.storage)

    def _prepared(self, schema: StructType) -> PreparedTopic:
        columns, source = schema.toNullable(), SourceOptions()
        return prepared_topic("", self.topic, columns, source, self.storage)


def _staging(
    target: Target, made: TopicRows
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: rows to files, and what is to be known of these."""

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_output(_numbered(batches, made), target)

    return stage


def _numbered(batches: Iterable[pa.RecordBatch], made: TopicRows) -> Iterator[pa.RecordBatch]:
    """Rows with their places in the task. Raises INVALID_RECORD."""
    first = 0
    for batch in batches:
        try:
            rows = made.records(batch)
        except ValueError as failure:
            raise error("INVALID_RECORD", str(failure)) from None
        places = np.arange(first, first + rows.num_rows)
        first += rows.num_rows
        yield changed_rows(rows, {"row": pa.array(places)})
