"""`keyrange ranges`: how a batch would be split by key, and where a key belongs.

Rule of this file: it asks and prints. `keyrange.source.planning` plans what
is planned, as for a query.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from keyrange.cli.members.document import open_table
from keyrange.cli.members.document import owner as owner_of
from keyrange.cli.ranges.document import (
    RangesPlan,
    document,
    home_topic,
    served_at,
    show_owner,
    state_copies,
)
from keyrange.cli.render import (
    Columns,
    OutputFormat,
    OutputOption,
    by_name,
    note,
    print_as,
    print_record,
    print_table,
    print_text,
    table_of,
)
from keyrange.cli.source_options import (
    SERVERS,
    GivenSource,
    ReadPlan,
    folded,
    names,
    of_batch,
    open_reading,
)
from keyrange.cli.values import KeyOption, read_key
from keyrange.errors import invalid_options
from keyrange.model.key_ranges import SPACE, KeyRange, index_of, split_at_weights, write_ranges
from keyrange.model.offset_splits import Split, cut
from keyrange.model.offsets import OffsetRange, TopicPartition, nested
from keyrange.ranges.model.range_plan import auto_ranges, even_ranges
from keyrange.text.formats import number, percent

if TYPE_CHECKING:
    from keyrange.kafka.record_sizes import RecordSizes
    from keyrange.members.table.assignment_schema import Stored

app = typer.Typer(no_args_is_help=True, help="Show the plan of a batch, or the owner of a key.")

_PARTITIONER: Final = "murmur2 of the key, its sign bit cleared, modulo the partitions"
# Where a sample for a cut is taken: so many places of each partition, so many records at each.
_SAMPLE_PLACES: Final = 16
_SAMPLE_RECORDS: Final = 2_000


@app.command()
def plan(
    given: GivenSource,
    suggest: Annotated[
        bool,
        typer.Option(
            "--suggest",
            help="Print JSON for option keyRanges instead: ranges that carry about the same "
            "number of records, by a sample.",
        ),
    ] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show the tasks that a batch would have.

    The batch goes from startingOffsets (earliest) to the end, with splitBy=keyRange unless an
    option says otherwise.
    """
    named = given.named(splitBy="keyRange")
    with open_reading(named) as reading:
        if suggest:
            _suggest(reading)
            return
        found, options = describe_plan(reading, sample(reading)), reading.options
    if options.key_ranges.cores is None:
        note(
            f"planned for the {found['parallelism']} cores of this host; option parallelism says "
            "how many tasks can run at once"
        )
    print_as(output, "ranges.plan/1", found, _print_plan)


@app.command()
def owner(
    key: KeyOption,
    given: GivenSource,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="How many partitions, in place of a topic.")
    ] = None,
    ranges: Annotated[
        int | None, typer.Option(min=1, help="How many ranges of equal size, in place of a topic.")
    ] = None,
    members: Annotated[
        str,
        typer.Option(
            metavar="TABLE",
            help="A query's table of members: name the slot, host and executor too. Without "
            "--bootstrap-servers it is asked for the partitions and ranges of --topic as well.",
        ),
    ] = "",
    commits: Annotated[
        str,
        typer.Option(
            metavar="TABLE",
            help="A query's commitTable: name the directory too that hosts have copies of the "
            "key's state in, if the query keeps state; needs --option slot.directory=...",
        ),
    ] = "",
    serve_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="The port at which `keyrange state serve` runs on the executors' hosts: name the "
            "address at which the owner's host serves the key's state; needs --members.",
        ),
    ] = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show partition, hash and key range of a key.

    The partition is that of Kafka's default partitioner. If topics share the state of their keys,
    members own the partitions of one of them: give its name as --option state.topic=..., or
    --commits.

    Producers may use another partitioner: `keyrange records --key` finds the records.
    """
    _check_owner(given.topic, partitions, ranges, members, commits, serve_port)
    topic = given.topic
    content = read_key(key)
    named = given.named(splitBy="keyRange")
    stored = open_table(members, named).last if members else None
    home = home_topic(topic, named, commits)
    if partitions is not None and ranges is not None:
        spans = even_ranges(ranges)
        found = _owner(content, partitions, lambda _: spans)
    elif stored is not None and not names(named, SERVERS):
        found = _owner_as_assigned(content, stored, home, named)
    else:
        with open_reading(of_batch(named)) as reading:
            found = _owner_in_topic(content, reading)
    if stored is not None:
        partition = found["partition"]
        place = None if partition is None else TopicPartition(home, partition)
        found |= owner_of(stored, place, found["hash"])
        if serve_port is not None:
            found["served_at"] = served_at(key, found["host"], serve_port)
    if commits:
        found["state_copies"] = state_copies(commits, named, home, found)
    print_as(output, "ranges.owner/1", found, partial(show_owner, content))


def _check_owner(
    topic: str,
    partitions: int | None,
    ranges: int | None,
    members: str,
    commits: str,
    serve_port: int | None,
) -> None:
    """Raises BadParameter where the arguments of `owner` do not go together."""
    without_broker = partitions is not None and ranges is not None
    if without_broker == bool(topic) or bool(partitions) != bool(ranges):
        raise typer.BadParameter("name either --topic, or both --partitions and --ranges")
    if "," in topic:
        raise typer.BadParameter("--topic: the owner of a key is asked for one topic")
    if (members or commits) and not topic:
        raise typer.BadParameter(f"{'--members' if members else '--commits'} needs --topic")
    if serve_port is not None and not members:
        raise typer.BadParameter("--serve-port needs --members, which names the owner's host")


def describe_plan(reading: ReadPlan, sampled: RecordSizes) -> dict[str, Any]:
    """The document of a batch that reads all that is pending."""
    from keyrange.source import planning

    options = reading.options
    sizes = sampled.of(reading.view, reading.pending)
    split_by = options.key_ranges.split_by
    known = (reading.pending, sizes, sampled.key_hashes, options)
    cells = planning.plan_cells(*known) if split_by == "keyRange" else ()
    tasks = planning.plan_read(*known)
    samples = {p: len(sampled.key_hashes(p)) for p in reading.pending}
    made = RangesPlan(tasks, cells, reading.pending, sizes, samples)
    return document(made, split_by, planning.cores(options))


def _print_plan(found: Mapping[str, Any]) -> None:
    amplification = found["read_amplification"]
    print_record(
        "Batch",
        {
            "split by": found["split_by"],
            "tasks": len(found["tasks"]),
            "offsets": number(found["offsets"]),
            "bytes of log, about": number(found["bytes"]),
            "read amplification in one executor": amplification["one_executor"],
            "read amplification without sharing": amplification["without_sharing"],
        },
    )
    print_table("Partitions", *table_of(_PARTITIONS, found["partitions"]))
    rows = [{**each, **row} for each in found["partitions"] for row in each["ranges"]]
    if rows:
        print_table("Key ranges, by a sample of the keys", *table_of(_RANGES, rows))
    print_table("Tasks", *table_of(_TASKS, found["tasks"]))


_PARTITIONS: Final[Columns] = {
    **by_name("topic", "partition"),
    "offsets": lambda row: f"[{row['from_offset']}, {row['until_offset']})",
    "bytes": lambda row: number(row["bytes"]),
    "ranges": lambda row: len(row["ranges"]) or None,
    "hot": lambda row: sum(each["hot"] for each in row["ranges"]),
    "read by tasks": lambda row: ", ".join(map(str, row["tasks"])),
}
_RANGES: Final[Columns] = {
    **by_name("topic", "partition"),
    "range": "index",
    "hashes": lambda row: "[{}, {}]".format(*row["range"]),
    "records": lambda row: number(row["records"]),
    "bytes": lambda row: number(row["bytes"]),
    "": lambda row: "hot" if row["hot"] else "",
    "task": "task",
}


def _reads(task: Mapping[str, Any]) -> str:
    """What a task reads, in words: of each partition all keys, or some of the hashes."""
    return ", ".join(
        f"{split['topic']}-{split['partition']} [{split['from_offset']}, {split['until_offset']})"
        + ("" if split["ranges"] is None else f" {percent(_share(split['ranges']))} of the hashes")
        for split in task["splits"]
    )


_TASKS: Final[Columns] = {
    "task": "task",
    "bytes": lambda row: number(row["bytes"]),
    "reads": _reads,
}


def _share(ranges: Sequence[Sequence[int]]) -> float:
    return sum(hi - lo + 1 for lo, hi in ranges) / 2.0**63


def sample(reading: ReadPlan) -> RecordSizes:
    """Sizes and keys of records, to be sampled where they are asked for."""
    from keyrange.kafka.record_sizes import RecordSizes

    nulls_first = reading.options.key_ranges.nulls_first
    return RecordSizes(reading.cluster, with_keys=True, nulls_first=nulls_first)


def _suggest(reading: ReadPlan) -> None:
    from keyrange.source import planning

    options, pending = reading.options, reading.pending
    planning.check_accepted(pending, options)
    counts = auto_ranges(
        pending, sample(reading).of(reading.view, pending), planning.cores(options)
    )
    found: dict[TopicPartition, list[list[int]]] = {}
    for partition, span in sorted(pending.items()):
        weights = Counter(_places(reading, partition, span))
        pieces = options.key_ranges.ranges_per_partition or counts[partition]
        ranges = split_at_weights(SPACE, weights, pieces)
        found[partition] = write_ranges(ranges)
        said = f"{partition}: {len(ranges)} ranges by a sample of {weights.total():,} records"
        # Offsets may hold none: markers of transactions, or what was compacted away.
        if weights:
            share = max(weights.values()) / weights.total()
            said += f"; the heaviest key has {percent(share)} of it"
        note(said)
    print_text(json.dumps(nested(found)))


def _places(reading: ReadPlan, partition: TopicPartition, span: OffsetRange) -> list[int]:
    """Where the keys of some records lie in the hash space, taken all over a partition."""
    from keyrange.kafka.fetching.fetch import SplitReader
    from keyrange.kafka.fetching.read_settings import read_settings

    settings = read_settings(replace(reading.options, columns=("keyHash",)))
    reader = SplitReader(reading.cluster, reading.view, settings)
    pieces = []
    for part in cut(span, _SAMPLE_PLACES):
        until_offset = min(part.from_offset + _SAMPLE_RECORDS, part.until_offset)
        pieces.append(Split(partition, part.from_offset, until_offset, bytes_estimate=1))
    return [place for batch in reader.read(pieces) for place in batch.column(0).to_pylist()]


def _owner_in_topic(content: bytes | None, reading: ReadPlan) -> dict[str, Any]:
    from keyrange.source import planning

    options, ranges = reading.options, reading.ranges
    planning.check_accepted(ranges, options)
    keys = options.key_ranges
    sizes = dict.fromkeys(ranges, 0.0) | sample(reading).of(reading.view, reading.pending)
    counts = auto_ranges(ranges, sizes, planning.cores(options))
    if keys.ranges_per_partition is None and not keys.ranges:
        note("keyRangesPerPartition is auto: the number of ranges is that of a batch of all")
    by_number = {partition.partition: partition for partition in ranges}

    def spans(number: int) -> Sequence[KeyRange]:
        partition = by_number[number]
        return planning.key_ranges_of(partition, options, counts[partition])

    return _owner(content, len(by_number), spans, keys.nulls_first)


def _owner_as_assigned(
    content: bytes | None, stored: Stored, topic: str, named: Mapping[str, str]
) -> dict[str, Any]:
    """The partitions and ranges are those that a driver has assigned."""
    owners = stored.assignment.owners if stored.assignment is not None else {}
    spans = {
        place.partition: [each.span for each in owned]
        for place, owned in owners.items()
        if place.topic == topic
    }
    if spans.keys() != set(range(len(spans))) or not spans:
        known = ", ".join(sorted({place.topic for place in owners})) or "none"
        raise invalid_options(
            f"the members own no topic {topic} from its partition 0 on; topics are: {known}; a "
            "topic that shares the state of their keys is asked for with --option "
            "state.topic=... or --commits"
        )
    nulls = folded(named).get("nullkeys")
    return _owner(content, len(spans), spans.__getitem__, nulls == "first")


def _owner(
    content: bytes | None,
    partitions: int,
    ranges_of: Callable[[int], Sequence[KeyRange]],
    nulls_first: bool = False,
) -> dict[str, Any]:
    """The document that `--output json` prints. None is what cannot be known of a null key: its
    partition is the producer's choice, its place that of the offset."""
    partition, place = None, 0 if nulls_first else None
    if content is not None:
        from keyrange.kafka.messages.produce import partition_of
        from keyrange.model.key_ranges import hash_of

        partition, place = partition_of(content, partitions), hash_of(content)
    spans = ranges_of(partition or 0)
    index = index_of(spans, place) if place is not None else None
    return {
        "partition": partition,
        "partitions": partitions,
        "partitioner": _PARTITIONER,
        "hash": place,
        "range": index,
        "ranges": len(spans),
        "bounds": write_ranges([spans[index]])[0] if index is not None else None,
    }
