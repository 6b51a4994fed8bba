"""Topics that a job writes to, by what `into` is given, before its query starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, Literal

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from keyrange.errors import KeyrangeError, error, invalid_options
from keyrange.formats.json.encoder import unwritable
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.topic_settings import TopicSettings, topic_settings
from keyrange.options import SourceOptions
from keyrange.options.option import OptionValue, texts_of
from keyrange.options.producer_properties import parse_producer_options
from keyrange.options.value_parsers import Violations
from keyrange.sending.topic_address import TopicAddress
from keyrange.wire.produced_batches import BatchSettings
from keyrange.wire.record_limits import TOPIC, TopicLimits
from keyrange.work.output_topic import OutputTopic
from keyrange.work.topic_rows import PARTS, TopicRows

ValueFormat = Literal["raw", "json"]
IfForgotten = Literal["fail", "send", "skip"]

_SENDERS_MAX: Final = 256
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
# What a job without a function hands on of its records, where `columns` does not say.
_CARRIED: Final = ("key", "value", "headers")
_OF_THE_SOURCE: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "keyHash")


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

    With value_format="json" the value of a record is a JSON object of all other columns, as Spark's
    to_json makes it.

    Each row is in the topic once for readers with isolation.level=read_committed, and those of a
    key are in the order of its records. `if_forgotten` says what is done where Kafka does not know
    any more whether a batch is out (TOPIC_OUTPUT_FORGOTTEN): "fail", "send" or "skip".
    """

    name: str = ""
    options: Mapping[str, OptionValue] | None = field(default=None, repr=False)
    value_format: ValueFormat = "raw"
    senders: int = 8
    marks: str = ""
    if_forgotten: IfForgotten = "fail"

    @property
    def is_json(self) -> bool:
        return self.value_format == "json"

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
        if self.value_format not in ("raw", "json"):
            wrong.append(f"{label}: value_format must be raw or json")
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
    if topic.is_json:
        left_out = {*_OF_THE_SOURCE} - {*(options.columns or ())}
        return StructType([each for each in schema if each.name not in left_out])
    named = options.columns or _CARRIED
    kept = StructType([each for each in schema if each.name in named])
    if [each.name for each in schema if each.name not in named] and "value" not in kept.names:
        raise invalid_options(
            [
                "a topic takes bytes or text as value, and what valueFormat reads are other "
                "columns: leave valueFormat out, or say value_format='json' of the topic"
            ]
        )
    return kept


def prepared_topic(
    name: str, topic: Topic, schema: StructType, source: SourceOptions
) -> PreparedTopic:
    """Raises INVALID_OPTIONS, INVALID_TOPIC_COLUMNS, UNKNOWN_TOPIC_OR_PARTITION, and what a first
    contact raises."""
    label = f"topic {name!r}" if name else "topic"
    if wrong := topic.mistakes(label):
        raise invalid_options(wrong)
    violations = Violations()
    texts = texts_of({} if topic.options is None else topic.options, violations)
    producer, client = parse_producer_options(texts, source.client, violations)
    read = source.subscription
    is_same = client.bootstrap_servers == source.client.bootstrap_servers
    if topic.name and read is not None and is_same and read.reads(topic.name):
        text = "is one that the query reads: each row would come as a record"
        violations.messages.append(f"{label} {text}")
    cut = {
        "splitBy=offset": source.key_ranges.split_by == "offset",
        "minPartitions": source.min_partitions is not None,
        "maxRecordsPerPartition": source.max_records_per_partition is not None,
    }
    for name in (name for name, is_said in cut.items() if is_said):
        text = f"needs the records of a key in one task, and {name} cuts partitions by offsets"
        violations.messages.append(f"{label} {text}: use splitBy=keyRange")
    violations.check()
    _check_columns(schema, topic, label)
    marks = topic.marks or topic.name
    partitions = 0
    with closing(Cluster(client)) as cluster:
        found = cluster.topic(marks)
        takes = TopicSettings()
        if topic.name:
            found = found if marks == topic.name else cluster.topic(topic.name)
            partitions = len(found.leaders)
            takes = topic_settings(cluster, topic.name)
    address = TopicAddress(topic.name, marks, client, producer, takes.message_bytes, found.topic_id)
    rows = TopicRows(address.limits(takes, partitions), topic.is_json, address)
    output = OutputTopic(schema.json(), rows, address, name)
    return PreparedTopic(output, topic.senders, topic.if_forgotten)


def _check_columns(schema: StructType, topic: Topic, label: str) -> None:
    """Raises INVALID_TOPIC_COLUMNS."""
    names = schema.names
    if topic.name and TOPIC in names:
        raise _refused(f"{label} has a name, and the rows a column topic: leave one of them out")
    if not topic.name and TOPIC not in names:
        raise _refused(f"{label} has no name, and the rows have no column topic")
    arrow = to_arrow_schema(schema, timezone="UTC")
    if TOPIC in names and arrow.field(TOPIC).type != pa.string():
        raise _refused(f"column topic is {arrow.field(TOPIC).type}, and has to be text")
    if topic.is_json:
        if "value" in names:
            raise _refused(f"{label} makes the value of all columns, and one of them is value")
        fields = pa.schema([each for each in arrow if each.name not in PARTS])
        if (column := unwritable(fields)) is not None:
            raise _refused(f"{label} makes no JSON of column {column}")
    TopicRows(TopicLimits(BatchSettings()), topic.is_json).schema(arrow)


def _refused(what: str) -> KeyrangeError:
    return error("INVALID_TOPIC_COLUMNS", what)
