"""What both sources make of option names and values."""

from __future__ import annotations

from collections.abc import Mapping

from parity.harness import Side
from parity.outcome import Scenario
from parity.tables import drain, read, with_long


def read_with_schema(side: Side) -> None:
    side.read(schema="value string")


def drain_with_schema(side: Side) -> None:
    frame = side.frame(schema="value string")
    if frame is not None:
        side.drain(frame)


def batch(name: str, options: Mapping[str, str], expect: str, **more: object) -> Scenario:
    """A batch read of `three` (20, 5 and 1 records), unless the options say something else."""
    options = {"subscribe": "<three>", **options}
    return Scenario(name=name, play=read, topics=("three",), options=options, expect=expect, **more)


def stream(name: str, options: Mapping[str, str], expect: str, **more: object) -> Scenario:
    """The same as a stream from earliest with Trigger.AvailableNow."""
    options = {"subscribe": "<three>", "startingOffsets": "earliest", **options}
    options = {key: text for key, text in options.items() if text != UNSET}
    return Scenario(
        name=name, play=drain, topics=("three",), options=options, expect=expect, **more
    )


UNSET = "(not given)"
ALL = '{"<three>":[0,1,2]}'
AT_NULL = '{"<three>":{"0":0,"1":0,"2":0}}'

NAMES = (
    Scenario(
        name="option names in upper case",
        play=read,
        topics=("three",),
        options={
            "SUBSCRIBE": "<three>",
            "STARTINGOFFSETS": '{"<three>":{"0":15,"1":-2,"2":1}}',
            "ENDINGOFFSETS": "LATEST",
            "INCLUDEHEADERS": "TRUE",
            "FAILONDATALOSS": "False",
            "MINPARTITIONS": "4",
            "KAFKACONSUMER.POLLTIMEOUTMS": "60000",
        },
        expect="10 rows",
    ),
    Scenario(
        name="option names in lower case",
        play=drain,
        topics=("three",),
        options={
            "subscribe": "<three>",
            "startingoffsets": "earLiEst",
            "maxoffsetspertrigger": "13",
            "includeheaders": "true",
            "failondataloss": "false",
            "minpartitions": "4",
            "kafkaconsumer.polltimeoutms": "60000",
        },
        expect="13+13 rows",
    ),
    Scenario(
        name="option names of limits in upper case",
        play=drain,
        topics=("three",),
        options={
            "ASSIGN": ALL,
            "STARTINGOFFSETS": "EARLIEST",
            "MAXOFFSETSPERTRIGGER": "13",
            "MINOFFSETSPERTRIGGER": "1",
            "MAXTRIGGERDELAY": "1m",
            "MAXRECORDSPERPARTITION": "5",
            "GROUPIDPREFIX": "p",
            "FETCHOFFSET.NUMRETRIES": "2",
            "FETCHOFFSET.RETRYINTERVALMS": "5",
        },
        expect="13+13 rows",
    ),
    batch("a name that is no option", {"includeHeader": "true"}, "26 rows"),
    stream("a name that is no option, stream", {"startingOffset": "latest"}, "26 rows"),
    batch("a name that is no Kafka property", {"kafka.fetch.min.byte": "1"}, "26 rows"),
)

STRATEGIES = (
    Scenario(name="no strategy", play=read, expect="load: ONE_STRATEGY"),
    Scenario(name="no strategy, stream", play=drain, expect="load: ONE_STRATEGY"),
    batch("subscribe and assign", {"assign": ALL}, "load: ONE_STRATEGY"),
    batch("subscribe and subscribePattern", {"subscribePattern": "t.*"}, "load: ONE_STRATEGY"),
    stream(
        "assign and subscribePattern",
        {"subscribe": UNSET, "assign": ALL, "subscribePattern": "t.*"},
        "load: ONE_STRATEGY",
    ),
    *(
        Scenario(
            name=f"{name} is {text!r}",
            play=play,
            options={name: text},
            expect=expect,
        )
        for play, name, text, expect in (
            (read, "assign", "", "load: BAD_VALUE"),
            (drain, "assign", "<own>", "load: BAD_VALUE"),
            (read, "assign", '{"t":1}', "load: BAD_VALUE"),
            (drain, "assign", '{"t":["a"]}', "run: BAD_VALUE"),
            (read, "subscribe", "", "load: EMPTY"),
            (drain, "subscribe", " , ", "load: EMPTY"),
            (read, "subscribePattern", "", "load: EMPTY"),
            (drain, "subscribePattern", "  ", "load: EMPTY"),
        )
    ),
    Scenario(
        name="subscribePattern is no expression",
        play=read,
        options={"subscribePattern": "("},
        expect="load: BAD_VALUE",
    ),
)

PLACE = (
    stream("endingOffsets in a stream", {"endingOffsets": "latest"}, "load: NOT_IN_STREAMS"),
    stream(
        "endingOffsetsByTimestamp in a stream",
        {"endingOffsetsByTimestamp": AT_NULL},
        "load: NOT_IN_STREAMS",
    ),
    stream("endingTimestamp in a stream", {"endingTimestamp": "5"}, "26 rows"),
    batch("maxOffsetsPerTrigger in a batch read", {"maxOffsetsPerTrigger": "5"}, "26 rows"),
    batch(
        "minOffsetsPerTrigger and maxTriggerDelay in a batch read",
        {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "1s"},
        "26 rows",
    ),
    batch(
        "startingOffsets latest in a batch", {"startingOffsets": "latest"}, "load: LATEST_IN_BATCH"
    ),
    batch(
        "startingOffsets -1 in a batch",
        {"startingOffsets": '{"<three>":{"0":-1}}'},
        "load: LATEST_IN_BATCH",
    ),
    batch("endingOffsets earliest", {"endingOffsets": "earliest"}, "load: EARLIEST_IN_BATCH"),
    batch("endingOffsets -2", {"endingOffsets": '{"<three>":{"0":-2}}'}, "load: EARLIEST_IN_BATCH"),
)

VALUES = (
    stream(
        "minOffsetsPerTrigger above maxOffsetsPerTrigger",
        {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"},
        "load: MIN_ABOVE_MAX",
    ),
    *(
        make(f"{name} is {text!r}{where}", {name: text}, expect)
        for make, where, name, text, expect in (
            (batch, "", "failOnDataLoss", "foo", "load: BAD_VALUE"),
            (stream, ", stream", "failOnDataLoss", "", "run: BAD_VALUE"),
            (batch, "", "includeHeaders", "foo", "load: BAD_VALUE"),
            (stream, ", stream", "includeHeaders", "1", "load: BAD_VALUE"),
            (batch, "", "minPartitions", "a", "load: BAD_VALUE"),
            (batch, "", "minPartitions", "1.0", "load: BAD_VALUE"),
            (batch, "", "minPartitions", "0", "load: BAD_VALUE"),
            (stream, ", stream", "minPartitions", "-1", "load: BAD_VALUE"),
            (batch, "", "minPartitions", " 4 ", "load: BAD_VALUE"),
            (batch, "", "maxRecordsPerPartition", "0", "load: BAD_VALUE"),
            (stream, ", stream", "maxRecordsPerPartition", "-1", "load: BAD_VALUE"),
            (batch, "", "maxRecordsPerPartition", "x", "load: BAD_VALUE"),
            (stream, "", "maxOffsetsPerTrigger", "0", "0 rows"),
            (stream, "", "maxOffsetsPerTrigger", "-5", "run: PARTITION_OFFSET_CHANGED"),
            (stream, "", "maxOffsetsPerTrigger", "x", "run: BAD_VALUE"),
            (stream, "", "minOffsetsPerTrigger", "x", "run: BAD_VALUE"),
            (stream, "", "startingTimestamp", "x", "run: BAD_VALUE"),
            (batch, "", "startingTimestamp", "1.5", "load: BAD_VALUE"),
            (batch, "", "endingTimestamp", "", "load: BAD_VALUE"),
            (batch, "", "startingOffsetsByTimestamp", "5", "load: BAD_VALUE"),
            (stream, ", stream", "startingOffsetsByTimestamp", '{"t":5}', "run: BAD_VALUE"),
            (batch, "", "endingOffsetsByTimestamp", '{"t":{"0":"x"}}', "load: BAD_VALUE"),
            (batch, "", "startingOffsetsByTimestampStrategy", "FOO", "load: BAD_VALUE"),
            (batch, "", "startingOffsets", "first", "load: BAD_VALUE"),
            (stream, ", stream", "startingOffsets", '{"<three>":3}', "run: BAD_VALUE"),
            (batch, "", "endingOffsets", "[1]", "load: BAD_VALUE"),
            (batch, "", "startingOffsets", '{"<three>":{"0":-3,"1":0,"2":0}}', "action: BAD_VALUE"),
            (
                stream,
                ", stream",
                "startingOffsets",
                '{"<three>":{"0":-3,"1":0,"2":0}}',
                "run: BAD_VALUE",
            ),
            (batch, "", "kafkaConsumer.pollTimeoutMs", "x", "load: BAD_VALUE"),
            (stream, "", "fetchOffset.numRetries", "x", "run: BAD_VALUE"),
            (stream, "", "fetchOffset.retryIntervalMs", "x", "run: BAD_VALUE"),
            (batch, "", "kafka.isolation.level", "foo", "action: BAD_VALUE"),
            (stream, ", stream", "kafka.isolation.level", "foo", "run: BAD_VALUE"),
            (batch, "", "kafka.fetch.min.bytes", "x", "action: BAD_VALUE"),
        )
    ),
    stream(
        "maxTriggerDelay is no time",
        {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "soon"},
        "run: BAD_VALUE",
    ),
    Scenario(
        name="a schema of one's own",
        play=read_with_schema,
        topics=("three",),
        options={"subscribe": "<three>"},
        expect="load: OWN_SCHEMA",
    ),
    Scenario(
        name="a schema of one's own, stream",
        play=drain_with_schema,
        topics=("three",),
        options={"subscribe": "<three>"},
        expect="load: OWN_SCHEMA",
    ),
)

CLIENT = (
    Scenario(
        name="no kafka.bootstrap.servers",
        play=lambda side: bool(side.read(**{"kafka.bootstrap.servers": None})),
        options={"subscribe": "t"},
        expect="load: NO_SERVERS",
    ),
    *(
        make(f"kafka.{name} is refused{where}", {f"kafka.{name}": text}, "load: CLIENT_OPTION")
        for make, where, name, text in (
            (batch, "", "auto.offset.reset", "earliest"),
            (stream, ", stream", "auto.offset.reset", "none"),
            (batch, "", "enable.auto.commit", "false"),
            (stream, ", stream", "interceptor.classes", "a.B"),
            (batch, "", "key.deserializer", "a.B"),
            (stream, ", stream", "value.deserializer", "a.B"),
        )
    ),
    batch(
        "kafka.group.id, groupIdPrefix and client properties",
        {
            "kafka.group.id": "g",
            "kafka.client.id": "c",
            "kafka.client.rack": "r",
            "kafka.fetch.min.bytes": "1",
            "kafka.fetch.max.wait.ms": "10",
            "kafka.max.partition.fetch.bytes": "1048576",
            "kafka.max.poll.records": "7",
            "kafka.receive.buffer.bytes": "65536",
            "kafka.request.timeout.ms": "30000",
            "kafka.session.timeout.ms": "45000",
            "kafka.check.crcs": "true",
            "kafka.metadata.max.age.ms": "5000",
            "kafka.isolation.level": "read_committed",
        },
        "26 rows",
    ),
    stream("groupIdPrefix", {"groupIdPrefix": "mine"}, "26 rows"),
)

# What a started query of the JVM connector fails with; another value, or the same in a batch read,
# is refused by the same check of keyrange's.
LONG = {
    "failOnDataLoss is '', stream",
    "minOffsetsPerTrigger is 'x'",
    "fetchOffset.retryIntervalMs is 'x'",
    "startingOffsetsByTimestamp is '{\"t\":5}', stream",
    'startingOffsets is \'{"<three>":{"0":-3,"1":0,"2":0}}\', stream',
    "kafka.isolation.level is 'foo', stream",
    "kafka.fetch.min.bytes is 'x'",
    "maxOffsetsPerTrigger in a batch read",
    "groupIdPrefix",
    "endingOffsetsByTimestamp in a stream",
}

SCENARIOS = with_long(LONG, (*NAMES, *STRATEGIES, *PLACE, *VALUES, *CLIENT))
