"""Topics that a job writes to, by what `into` is given, before its query starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, Literal, TypedDict

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from keyrange.errors import KeyrangeError, error, invalid_options
from keyrange.jobs.record_columns import columns_read
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.topic_settings import topic_settings
from keyrange.model.columns import OFFSET
from keyrange.model.value_forms import WRITTEN, Side, UnfitSchema, WrittenForm
from keyrange.options import SourceOptions
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.option import OptionValue, texts_of
from keyrange.options.producer_properties import ProducerSettings
from keyrange.options.topic_options import TopicValues, parse_topic_options
from keyrange.options.value_format import ValueOptions
from keyrange.options.value_parsers import Violations
from keyrange.sending.model.marks import LETTERS
from keyrange.sending.topic_address import TopicAddress
from keyrange.source.schema import source_schema, typed_schema
from keyrange.values.writing import encoder_of
from keyrange.values.written_forms import written_form
from keyrange.wire.topic_limits import TOPIC, TopicLimits
from keyrange.work.topic_rows import PARTS, OutputTopic, TopicRows, typed_column

ValueFormat = Literal["raw", "json", "avro", "protobuf"]
IfForgotten = Literal["fail", "send", "skip"]

_SENDERS_MAX: Final = 256
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
# What a job without a function hands on of its records, where `columns` does not say.
CARRIED: Final = ("key", "value", "headers")
_OF_THE_SOURCE: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "keyHash")


class TopicArguments(TypedDict, total=False):
    """Those of a `Topic` with a name."""

    options: Mapping[str, OptionValue] | None
    value_format: ValueFormat
    value_schema: str
    key_format: ValueFormat
    key_schema: str
    senders: int
    if_forgotten: IfForgotten


# Options may hold secrets: they are not shown.
@dataclass(frozen=True)
class Topic:
    """A topic for the rows of a job, in the place of a table of `keyrange.job(...).into`.

    Rows have `value` and perhaps `key`, `headers`, `timestamp` and `partition`, as for Spark's own
    sink: texts or bytes, a list of structs of key and value, a timestamp, an integer. Without a
    `name` their column `topic` says where each goes; `marks` is then a topic that exists, for
    Kafka's notes of what is sent. `options` are the producer's properties, `kafka.NAME`; what they
    do not say of the connection is as that of the job's source. At most so many `senders` send the
    rows of a batch side by side.

    With value_format="json", "avro" or "protobuf" a value is written of all other columns, or of a
    struct `value`, of which a null makes a tombstone; with `key_format` a key is written of the
    column `key`. `value_schema` and `key_schema` are as the options valueSchema and keySchema of
    the source; what else those options say of schemas and of a registry is in `options`.

    Each row is in the topic once for readers with isolation.level=read_committed, and those of a
    key are in the order of its records. `if_forgotten` says what is done where Kafka does not know
    any more whether a batch is out (TOPIC_OUTPUT_FORGOTTEN): "fail", "send" or "skip".
    """

    name: str = ""
    options: Mapping[str, OptionValue] | None = field(default=None, repr=False)
    value_format: ValueFormat = "raw"
    value_schema: str = ""
    key_format: ValueFormat = "raw"
    key_schema: str = ""
    senders: int = 8
    marks: str = ""
    if_forgotten: IfForgotten = "fail"

    def typed(self) -> tuple[Side, ...]:
        """What of records is written by a format."""
        formats: dict[Side, str] = {"value": self.value_format, "key": self.key_format}
        return tuple(side for side, form in formats.items() if form != "raw")

    def parsed(
        self, texts: Mapping[str, str], source: SourceOptions, violations: Violations
    ) -> tuple[ProducerSettings, ClientSettings, TopicValues]:
        """What its options say; what is wrong with them goes to `violations`."""
        values = ValueOptions(
            format=self.value_format,
            schema=self.value_schema,
            key_format=self.key_format,
            key_schema=self.key_schema,
        )
        given = (self.name, values, source.client, source.registry, violations)
        return parse_topic_options(texts, *given)

    def mistakes(self, label: str) -> list[str]:
        """What is wrong with it, whatever the rows are."""
        wrong = []
        for what, value in (("", self.name), (" marks", self.marks)):
            if not isinstance(value, str) or (value and not _NAME.fullmatch(value)):
                wrong.append(f"{label}{what}: {str(value)[:80]!r} is no name of a topic")
        if not self.name and not self.marks:
            wrong.append(f"{label} needs a name, or marks where a column says the topic of a row")
        if not isinstance(self.senders, int) or not 1 <= self.senders <= _SENDERS_MAX:
            wrong.append(f"{label}: senders must be between 1 and {_SENDERS_MAX}")
        for what, form in (("value", self.value_format), ("key", self.key_format)):
            if form not in ("raw", *WRITTEN):
                words = ", ".join(("raw", *WRITTEN))
                wrong.append(f"{label}: {what}_format must be one of {words}")
        if self.if_forgotten not in ("fail", "send", "skip"):
            wrong.append(f"{label}: if_forgotten must be fail, send or skip")
        return wrong


@dataclass(frozen=True)
class PreparedTopic:
    """A topic as the driver knows it: `output` is what the tasks know."""

    @property
    def address(self) -> TopicAddress:
        return self.output.address

    output: OutputTopic
    senders: int
    if_forgotten: str


def carried(schema: StructType, topic: Topic, options: SourceOptions) -> StructType:
    """The columns that a job without a function writes to a topic. Raises INVALID_OPTIONS."""
    if topic.value_format != "raw":
        left_out = {*_OF_THE_SOURCE} - {*(options.columns or ())}
        read = typed_schema(source_schema(columns_read(options)), options.forms)
        whole = StructType([each for each in read if each.name not in left_out])
        if all(each.name in (*PARTS, "value") for each in whole):
            # A record without a value stays one.
            return whole
        return StructType([each for each in schema if each.name not in left_out])
    named = options.columns or CARRIED
    kept = StructType([each for each in schema if each.name in named])
    if [each.name for each in schema if each.name not in named] and "value" not in kept.names:
        raise invalid_options(
            "a topic takes bytes or text as value, and what valueFormat reads are other "
            "columns: leave valueFormat out, or give the topic a value_format"
        )
    return kept


def prepared_topic(
    name: str,
    topic: Topic,
    schema: StructType,
    source: SourceOptions,
    storage: Mapping[str, str] | None = None,
    of_records: bool = False,
) -> PreparedTopic:
    """`storage` are settings of the object store with a file of a schema. `of_records` as of
    `TopicRows`. Raises INVALID_OPTIONS,
    INVALID_TOPIC_COLUMNS, UNKNOWN_TOPIC_OR_PARTITION, and what a first contact raises, also with a
    registry."""
    label = f"topic {name!r}" if name else "topic"
    if wrong := topic.mistakes(label):
        raise invalid_options(wrong)
    violations = Violations()
    texts = texts_of({} if topic.options is None else topic.options, violations)
    producer, client, written = topic.parsed(texts, source, violations)
    read = source.subscription
    is_same = client.bootstrap_servers == source.client.bootstrap_servers
    if topic.name and read is not None and is_same and read.reads(topic.name):
        text = "is one that the query reads: each row would come as a record"
        violations.messages.append(f"{label} {text}")
    if name == LETTERS and source.commits.dead_letter_topic:
        # One would take the other's marks for its own, and what is not sent for sent.
        violations.messages.append(f"{label} has the name of what option {LETTERS} sends")
    for each in _cuts(source):
        text = f"needs the records of a key in one task, and {each} cuts partitions by offsets"
        violations.messages.append(f"{label} {text}: use splitBy=keyRange")
    violations.check()
    marks = topic.marks or topic.name
    partitions = 0
    with closing(Cluster(client)) as cluster:
        found = cluster.topic(marks)
        takes = TopicLimits()
        if topic.name:
            found = found if marks == topic.name else cluster.topic(topic.name)
            partitions = len(found.leaders)
            takes = topic_settings(cluster, topic.name)
    # A topic that is not there has no schema registered for it.
    forms = _forms(schema, topic, written, label, storage or {}, of_records)
    address = TopicAddress(topic.name, marks, client, producer, takes.message_bytes, found.topic_id)
    rows = TopicRows(address.limits(takes, partitions), forms, address, of_records)
    output = OutputTopic(schema.json(), rows, address, name)
    return PreparedTopic(output, topic.senders, topic.if_forgotten)


def _cuts(source: SourceOptions) -> list[str]:
    """Options that give the records of a key to several tasks."""
    said = {
        "splitBy=offset": source.key_ranges.split_by == "offset",
        "minPartitions": source.min_partitions is not None,
        "maxRecordsPerPartition": source.max_records_per_partition is not None,
    }
    return [name for name, is_said in said.items() if is_said]


def _forms(
    schema: StructType,
    topic: Topic,
    written: TopicValues,
    label: str,
    storage: Mapping[str, str],
    of_records: bool,
) -> tuple[WrittenForm, ...]:
    """How keys and values are written. Raises INVALID_TOPIC_COLUMNS."""
    if of_records:
        schema = StructType([each for each in schema if each.name != OFFSET])
    names = schema.names
    if topic.name and TOPIC in names:
        which = "of the source's own columns option columns takes some, such as key,value"
        raise _refused(
            f"{label} has a name, and the rows a column topic: leave one of them out; {which}"
        )
    if not topic.name and TOPIC not in names:
        raise _refused(f"{label} has no name, and the rows have no column topic")
    arrow = to_arrow_schema(schema, timezone="UTC")
    if TOPIC in names and arrow.field(TOPIC).type != pa.string():
        raise _refused(f"column topic is {arrow.field(TOPIC).type}, and has to be text")
    typed = topic.typed()
    if "key" in typed and "key" not in names:
        raise _refused(f"{label} has key_format {topic.key_format}, and the rows no column key")
    if "value" in typed and "value" in names:
        if not pa.types.is_struct(arrow.field("value").type):
            kind = arrow.field("value").type
            raise _refused(f"column value is {kind}, and has to be a struct: {label} writes it")
        if more := [each for each in names if each not in (*PARTS, "value")]:
            raise _refused(f"{label} writes column value, and beside it is column {more[0]}")
    rows = pa.RecordBatch.from_pylist([], arrow)
    forms = []
    for side in typed:
        kind = typed_column(side, rows).type
        try:
            form = written_form(side, kind, written, topic.name, storage)
            encoder_of(form, kind)
        except UnfitSchema as failure:
            raise _refused(f"{label}: the schema of its {side}s: {failure}") from None
        forms.append(form)
    TopicRows(TopicLimits(), tuple(forms)).schema(arrow)
    return tuple(forms)


def _refused(what: str) -> KeyrangeError:
    return error("INVALID_TOPIC_COLUMNS", what)
