"""Rows of a job as records of a topic: what a user's columns become, and whether a topic takes
them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from keyrange.errors import KeyrangeError
from keyrange.model.columns import OFFSET
from keyrange.model.value_forms import Side, WrittenForm
from keyrange.sending.partition_counts import partitions_of
from keyrange.sending.topic_address import TopicAddress
from keyrange.values.writing import encoder_of
from keyrange.wire.topic_limits import TOPIC, TopicLimits

# The columns of a record beside its value.
PARTS: Final = ("key", "headers", "timestamp", "partition", TOPIC)
_NO_RECORD: Final = "it becomes no record of the topic"


@dataclass(frozen=True, slots=True)
class TopicRows:
    """`forms` say how keys and values are written that are no bytes yet. `address`: of topics that
    a column names, which are asked about when they first come. `of_records`: column offset of a row
    says which record it is of, and is nothing that the topic gets."""

    limits: TopicLimits
    forms: tuple[WrittenForm, ...] = ()
    address: TopicAddress | None = None
    of_records: bool = False

    def records(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Raises ValueError for a row that cannot become a record; the text has no value of it."""
        # Its kernels take a second to load: a process that plans has no rows.
        from keyrange.wire.produced_faults import fault_of

        offsets = rows.column(OFFSET) if self.of_records else None
        if offsets is not None:
            rows = rows.drop_columns([OFFSET])
        for form in self.forms:
            rows = _written(form, rows)
        fault = fault_of(self.limits, rows, time.time_ns() // 1_000_000)
        if fault is None and TOPIC in rows.schema.names and self.address is not None:
            fault = _unknown_place(rows, self.address)
        if fault is not None:
            raise ValueError(f"{_NO_RECORD}: {fault}")
        return rows if offsets is None else rows.append_column(OFFSET, offsets)

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """The columns of the records that are made of rows. Raises UnfitSchema where a form takes
        no such columns."""
        found = self.records(pa.RecordBatch.from_pylist([], rows)).schema
        return found.remove(found.get_field_index(OFFSET)) if self.of_records else found


@dataclass(frozen=True, slots=True)
class OutputTopic:
    """A topic that a job writes, as its tasks know it. `schema` is Spark's JSON of what the job
    makes for it, `rows` what becomes of that. `name`: what the job's function calls it, "" where
    all is for it."""

    schema: str
    rows: TopicRows
    address: TopicAddress
    name: str = ""


def typed_column(side: Side, rows: pa.RecordBatch) -> pa.Array:
    """What keys or values are written of: the column of this name, or for values without one a
    struct of all columns but those of a record."""
    if side in rows.schema.names:
        return rows.column(side)
    return rows.select([each for each in rows.schema.names if each not in PARTS]).to_struct_array()


def _written(form: WrittenForm, rows: pa.RecordBatch) -> pa.RecordBatch:
    column = typed_column(form.column, rows)
    found = encoder_of(form, column.type).write(column)
    if found.bad:
        raise ValueError(f"{_NO_RECORD}: {form.column}: {next(iter(found.bad.values()))}")
    is_key = form.column == "key"
    kept = [name for name in rows.schema.names if is_key or name in PARTS]
    columns = {name: rows.column(name) for name in kept}
    return pa.RecordBatch.from_pydict({**columns, form.column: found.payloads})


def _unknown_place(rows: pa.RecordBatch, address: TopicAddress) -> str | None:
    """Why a row's topic takes it not: there is none, or none of its partitions."""
    import pyarrow.compute as pc

    topics = rows.column(TOPIC)
    for topic in pc.unique(topics).to_pylist():
        try:
            count = partitions_of(address.client, topic)
        except KeyrangeError as failure:
            if failure.condition.name != "UNKNOWN_TOPIC_OR_PARTITION":
                raise
            return "its topic is not there"
        if "partition" in rows.schema.names:
            named = rows.column("partition").filter(pc.equal(topics, topic))
            if pc.any(pc.greater_equal(named, count)).as_py():
                return f"its topic has {count} partitions"
    return None
