"""The reviewed list: where `keyrange` differs from `kafka`, and why.

`cases` pins what keyrange does instead, by scenario: its result, or by fact where the result is the
same. `python -m parity.differences` in tests/ prints the table of MIGRATION.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Case = str | Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One reason. `what`, `kafka`, `keyrange` and `reason` are for readers of the guide."""

    what: str
    kafka: str
    keyrange: str
    reason: str
    cases: Mapping[str, Case]


def same(result: Case, *scenarios: str) -> dict[str, Case]:
    return dict.fromkeys(scenarios, result)


LENIENT = ", without failOnDataLoss"
MINUS_THREE = 'startingOffsets is \'{"<three>":{"0":-3,"1":0,"2":0}}\''

OPTIONS = (
    Difference(
        what="An option or `kafka.*` property that does not exist",
        kafka="is ignored",
        keyrange="is refused at load, with the nearest name",
        reason="a spelling mistake must not silently mean the default",
        cases=same(
            "load: UNKNOWN_OPTION",
            "a name that is no option",
            "a name that is no option, stream",
            "a name that is no Kafka property",
        ),
    ),
    Difference(
        what="A value that cannot be read, or offsets below -2",
        kafka="some fail at load, others in the started query or in a task",
        keyrange="all fail at load, all of them at once",
        reason="what can be known before the first connection is said there",
        cases=same(
            "load: BAD_VALUE",
            'assign is \'{"t":["a"]}\'',
            "failOnDataLoss is '', stream",
            "maxOffsetsPerTrigger is 'x'",
            "minOffsetsPerTrigger is 'x'",
            "maxTriggerDelay is no time",
            "startingTimestamp is 'x'",
            "startingOffsetsByTimestamp is '{\"t\":5}', stream",
            "startingOffsets is '{\"<three>\":3}', stream",
            MINUS_THREE,
            f"{MINUS_THREE}, stream",
            "fetchOffset.numRetries is 'x'",
            "fetchOffset.retryIntervalMs is 'x'",
            "kafka.isolation.level is 'foo'",
            "kafka.isolation.level is 'foo', stream",
            "kafka.fetch.min.bytes is 'x'",
        ),
    ),
    Difference(
        what="Numbers with spaces around them",
        kafka="are refused",
        keyrange="are read",
        reason="they have one meaning",
        cases=same("26 rows", "minPartitions is ' 4 '"),
    ),
    Difference(
        what="`maxOffsetsPerTrigger` of 0 or less",
        kafka="0 reads nothing for ever, -5 fails as data loss",
        keyrange="is refused at load",
        reason="no such limit can be meant",
        cases=same(
            "load: BAD_VALUE", "maxOffsetsPerTrigger is '0'", "maxOffsetsPerTrigger is '-5'"
        ),
    ),
    Difference(
        what="`endingTimestamp` in a stream",
        kafka="is ignored",
        keyrange="is refused when the query starts",
        reason="the other ending options are refused too",
        cases=same("run: NOT_IN_STREAMS", "endingTimestamp in a stream"),
    ),
    Difference(
        what="Options that a stream, or a batch read, cannot have; a schema of one's own",
        kafka="are refused at load",
        keyrange="are refused when the query starts, or at the first action",
        reason="Spark loads a Python source before it says whether it is a stream",
        cases={
            **same(
                "run: NOT_IN_STREAMS",
                "endingOffsets in a stream",
                "endingOffsetsByTimestamp in a stream",
            ),
            **same(
                "action: LATEST_IN_BATCH",
                "startingOffsets latest in a batch",
                "startingOffsets -1 in a batch",
            ),
            **same("action: EARLIEST_IN_BATCH", "endingOffsets earliest", "endingOffsets -2"),
            **same("action: START_ABOVE_END", "start above end", "start time above end time"),
            **same(
                "action: OTHER_PARTITIONS_AT_END",
                "start and end name different partitions",
                "start times and end times name different partitions",
            ),
            "a schema of one's own": "action: OWN_SCHEMA",
            "a schema of one's own, stream": "run: OWN_SCHEMA",
        },
    ),
)

TOPICS = (
    Difference(
        what="A partition in `assign` that does not exist",
        kafka="is left out without a word",
        keyrange="is an error that names it",
        reason="records that were asked for must not be missing in silence",
        cases={
            **same(
                "action: UNKNOWN_TOPIC_OR_PARTITION",
                "assign a partition that does not exist",
                "assign none of what exists",
            ),
            "assign no partition": "load: BAD_VALUE",
            "stream: assign a partition that does not exist": "run: UNKNOWN_TOPIC_OR_PARTITION",
        },
    ),
    Difference(
        what="`subscribePattern`",
        kafka="is searched for inside of the topics' names",
        keyrange="describes whole names; `subscribePatternMatch=search` searches",
        reason="Kafka's own consumer has it so, and `orders` should not read `reorders-test`",
        cases={"a pattern inside of names": "0 rows"},
    ),
    Difference(
        what="Patterns in a syntax that only Java has: `\\Q`, `\\p{...}`, sets within sets",
        kafka="are read",
        keyrange="are refused at load",
        reason="Python does not read them, or finds other topics",
        cases=same(
            "load: BAD_VALUE", "a pattern with a quotation", "a pattern with a set in a set"
        ),
    ),
    Difference(
        what="A stream whose pattern matches no topic yet",
        kafka="runs no batch",
        keyrange="runs one empty batch",
        reason="a Python source has to answer with an offset",
        cases=same("0 rows", "stream: a pattern of no topic"),
    ),
    Difference(
        what="A DataFrame of a batch read that is used again",
        kafka="sees new records and new partitions",
        keyrange="sees new records, unless it has an ending time or a split; a new partition when "
        "it is loaded anew",
        reason="Spark plans a Python source once for each load()",
        cases=same("10 rows | 10 rows", "batch: a frame sees a new partition"),
    ),
)

GROUPS = (
    Difference(
        what="`kafka.group.id`, `groupIdPrefix`",
        kafka="name consumers that commit nothing",
        keyrange="the driver also commits the offsets of finished batches to that group: name none "
        "from which something else resumes, or set `mirrorOffsets=false`",
        reason="Kafka's tools then show the query's lag",
        cases=same("10 rows | 1 groups", "stream: a group that is named"),
    ),
)

CUTS = (
    Difference(
        what="Small partitions",
        kafka="have a task each, also where they are empty",
        keyrange="share tasks of about 8 MiB; `bytesPerTask=0` gives one each",
        reason="a Python task costs more than reading a few megabytes",
        cases=same(
            {"tasks": "1"},
            "tasks: default",
            "tasks: an empty partition",
            "tasks: an empty topic",
            "stream: tasks",
        ),
    ),
    Difference(
        what="`maxRecordsPerPartition` in a batch read",
        kafka="counts only where `minPartitions` asks for more tasks, and then wins over it",
        keyrange="holds, as it does in a stream; with `minPartitions` both hold",
        reason="the option says so",
        cases={
            "tasks: maxRecordsPerPartition 4": {"tasks": "8"},
            "tasks: minPartitions 6, maxRecordsPerPartition 9": {"tasks": "7"},
        },
    ),
    Difference(
        what="`minOffsetsPerTrigger` with `availableNow`",
        kafka="the last records may be left, below the minimum",
        keyrange="the run reads them all",
        reason="the run would end, and nothing would come to wait for",
        cases=same("12+11+3 rows", "stream: min 10, limit 12"),
    ),
)

RECREATED = "10 rows | run: TOPIC_RECREATED | run: TOPIC_RECREATED"

LOSSES = (
    Difference(
        what="A topic that was deleted and created anew, `failOnDataLoss=true`",
        kafka="is noticed only where its end lies below the position; else records are skipped",
        keyrange="is noticed by the topic's id, and fails as `KAFKA_DATA_LOSS.TOPIC_RECREATED`",
        reason="records must not be skipped in silence",
        cases={
            **same(
                RECREATED,
                "fault: recreated with fewer records",
                "fault: recreated with as many records",
                "fault: recreated with more records",
            ),
            **same(
                "10 rows, run: TOPIC_RECREATED",
                "fault: recreated with fewer records while running",
                "fault: recreated with more records while running",
            ),
            "fault: recreated with fewer records in availableNow": "4 rows, run: TOPIC_RECREATED",
            "fault: recreated with fewer partitions": "18 rows | run: TOPIC_RECREATED",
        },
    ),
    Difference(
        what="The same with `failOnDataLoss=false`",
        kafka="goes on at the old offset, or at the new end: new records are skipped; "
        "`availableNow` fails",
        keyrange="reads the new topic from its start, after a warning",
        reason="going on with what is left means all that is left",
        cases={
            f"fault: recreated with fewer records{LENIENT}": "10 rows | 3 rows | 2 rows",
            f"fault: recreated with as many records{LENIENT}": "10 rows | 10 rows | 2 rows",
            f"fault: recreated with more records{LENIENT}": "10 rows | 13 rows | 2 rows",
            f"fault: recreated with fewer records while running{LENIENT}": "15 rows",
            f"fault: recreated with more records while running{LENIENT}": "25 rows",
            f"fault: recreated with fewer records in availableNow{LENIENT}": "4+3 rows",
            f"fault: recreated with fewer partitions{LENIENT}": "18 rows | 2 rows",
        },
    ),
    Difference(
        what="A topic of a `subscribe` list that was deleted",
        kafka="`UnknownTopicOrPartitionException` without its name, also with "
        "`failOnDataLoss=false`",
        keyrange="`KAFKA_DATA_LOSS.PARTITIONS_DELETED`, which names it; with "
        "`failOnDataLoss=false` the run goes on, and a later one asks to correct the list",
        reason="what was there and is gone is a loss, and no wrong name",
        cases={
            "fault: one of two topics deleted": "18 rows | run: PARTITIONS_DELETED"
            " | run: PARTITIONS_DELETED",
            f"fault: one of two topics deleted{LENIENT}": "18 rows | 2 rows"
            " | run: UNKNOWN_TOPIC_OR_PARTITION",
        },
    ),
    Difference(
        what="All topics of a pattern deleted, `failOnDataLoss=true`",
        kafka="an empty batch; fails when another topic matches",
        keyrange="fails at once",
        reason="the loss is known then",
        cases=same(
            "10 rows | run: PARTITIONS_DELETED | run: PARTITIONS_DELETED",
            "fault: all matching topics deleted",
        ),
    ),
    Difference(
        what="A topic deleted between the planning of a batch and its reading",
        kafka="a task waits, then fails with a TimeoutException, also with `failOnDataLoss=false`",
        keyrange="`KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE`; with `failOnDataLoss=false` a "
        "warning",
        reason="it is a loss, which the option is there for",
        cases={
            "fault: a topic deleted during a batch": "10 rows | run: COULD_NOT_READ_OFFSET_RANGE",
            f"fault: a topic deleted during a batch{LENIENT}": "10 rows | 0 rows",
        },
    ),
)

CHECKPOINTS = (
    Difference(
        what="A checkpoint of `kafka` whose batch 0 is planned and not committed",
        kafka="goes on",
        keyrange="is refused with the remedy, unless `startingOffsets` gives every offset",
        reason="where batch 0 starts is in a file that Spark does not show to a Python source",
        cases={
            "stream: checkpoint of kafka, batch 0 not committed": "10 rows"
            " | run: UNCOMMITTED_FOREIGN_BATCH",
        },
    ),
    Difference(
        what="The first run on a checkpoint of `kafka`, with nothing new to read",
        kafka="runs no batch",
        keyrange="runs one empty batch",
        reason="Spark compares offsets as text, and writes the same offset in two ways",
        cases={
            "stream: checkpoint of kafka, nothing new": "10 rows | 0 rows",
            "stream: checkpoint of kafka, batch 0 not committed, start given": "6 rows | 6+0 rows",
        },
    ),
    Difference(
        what="A checkpoint of `keyrange` given to `kafka`",
        kafka="reads its own",
        keyrange="its offsets have one key more, which `kafka` refuses: export it first",
        reason="topic ids and starts are kept there, see ARCHITECTURE.md",
        cases=same("10 rows | run: BAD_VALUE", "stream: checkpoint read by kafka"),
    ),
)

DIFFERENCES = (*OPTIONS, *TOPICS, *GROUPS, *CUTS, *LOSSES, *CHECKPOINTS)


def listed(scenario: str) -> dict[str, str]:
    """What is listed for a scenario, by fact."""
    for difference in DIFFERENCES:
        case = difference.cases.get(scenario)
        if case is not None:
            return {"result": case} if isinstance(case, str) else dict(case)
    return {}


def table() -> str:
    """The list as a Markdown table."""
    rows = [("what", '`format("kafka")`', '`format("keyrange")`', "why")]
    rows += [("---",) * 4]
    rows += [(one.what, one.kafka, one.keyrange, one.reason) for one in DIFFERENCES]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    print(table(), end="")
