"""`keyrange records`: the records of some keys, wherever they are, the last ones, new ones as they
come, or the one at an offset.

They are read by keyrange's own reader, without Spark; all others are left out while they are
decoded.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from keyrange.cli.render import (
    OutputFormat,
    OutputOption,
    note,
    print_document,
    print_table,
    print_text,
)
from keyrange.cli.source_options import GivenSource, ReadPlan, folded, open_reading, read_record_id
from keyrange.cli.values import KeysOption, in_json, iso, keys_option, read_key, shown
from keyrange.errors import invalid_options
from keyrange.model.offsets import EARLIEST, LATEST, OffsetRange
from keyrange.model.value_forms import BAD_COLUMN
from keyrange.text.escaping import one_line
from keyrange.text.formats import counted
from keyrange.values.forms import value_forms

if TYPE_CHECKING:
    import pyarrow as pa

_PASS_BYTES: Final = 64 * 1024 * 1024
_PROGRESS_S: Final = 2.0
# What of a key or value a table shows; JSON has all of it.
_CELL_CHARACTERS: Final = 120
_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
_LIMIT: Final = 100
# Between two questions for new records, where the last one brought none.
_PAUSE_S: Final = 0.5
_TOKEN: Final = re.compile(r"%([tpokvsTh])|%%|\\[nt\\]")
_NAMES: Final = ("topic", "partition", "offset", "key", "value", "value", "timestamp", "headers")
_FIELDS: Final = dict(zip("tpokvsTh", _NAMES, strict=True))
_ESCAPES: Final = {"%%": "%", r"\n": "\n", r"\t": "\t", "\\\\": "\\"}

LastOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="The last N of each partition.")
]
FollowOption = Annotated[
    bool,
    typer.Option(
        "--follow",
        help="Go on with new records, until Ctrl-C. Without --key and --last begin at the end, "
        "or where option startingOffsets says.",
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help=r"A line for each record, as kcat has it: %t topic, %p partition, %o offset, %k key, "
        r"%v or %s value, %T timestamp in ms, %h headers, %%; \n and \t.",
    ),
]


def records(
    key: KeysOption = None,
    offset: Annotated[
        str,
        typer.Option(
            metavar="TOPIC-PARTITION:OFFSET",
            help="The record there, as `commits gaps` names it: orders-3:41207. In the place of "
            "--key and --topic.",
        ),
    ] = "",
    last: LastOption = None,
    follow: FollowOption = False,
    form: FormatOption = "",
    *,
    given: GivenSource,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="How many to print at most: 100, or all of --last and --follow."),
    ] = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Print records: those with some keys, the last ones, new ones, or the one at an offset.

    For keys the command reads all partitions from startingOffsets (earliest) to the end, one after
    the other, each in the order of offsets. Options such as startingTimestamp and endingOffsets
    bound the search. JSON has a record on each line.
    """
    if bool(offset) == bool(key or last or follow):
        raise typer.BadParameter("say what to look for: --key, --last or --follow, or --offset")
    named = given.named()
    _check(named, form, output)
    if key:
        named["keys"] = keys_option([read_key(each) for each in key])
    if offset:
        named |= _one_offset(offset, named)
    limit = limit or (None if last or follow else _LIMIT)
    if not (key or offset or last or any(each.startswith("starting") for each in folded(named))):
        # What is there already was not asked for.
        last = 0
    rows: list[list[Any]] = []
    found_keys: set[bytes | None] = set()
    printed, has_keys = 0, True
    # Closed at the limit, which ends what was asked for ahead.
    with _opened(named) as reading, closing(_found(reading, last, follow)) as found:
        if offset:
            _check_in_log(reading)
        for record in islice(found, limit):
            printed += 1
            has_keys = "key" in record
            found_keys.add(record.get("key"))
            if output is OutputFormat.JSON:
                print_document("records/1", _json(record))
            elif form or follow:
                print_text(_line(record, form), flush=follow)
            else:
                rows.append(_cells(record))
        looked = sum(span.size for span in reading.pending.values())
    if rows:
        print_table("Records", _COLUMNS, rows)
    if offset and not printed:
        note(f"there is no record at {offset}: compacted away, or a marker of a transaction")
    # Without their column nobody sees which keys the records have.
    is_told = printed != limit and (not printed or has_keys)
    missing = [text for text in key or () if read_key(text) not in found_keys]
    if is_told and missing:
        keys = f"the key{'' if len(missing) == 1 else 's'} {', '.join(missing)}"
        note(f"no record has {keys}: {counted(looked, 'offset')} looked through")
    if (key or last) and printed == limit:
        note(f"stopped after the {limit} records of --limit, there may be more")


@contextmanager
def _opened(named: Mapping[str, str]) -> Iterator[ReadPlan]:
    """With the forms of keys and values, for which a registry may be asked: once, however often new
    records are looked for."""
    with open_reading(named) as plan:
        forms = value_forms(plan.options)
        yield replace(plan, options=replace(plan.options, forms=forms))


def _check(named: dict[str, str], form: str, output: OutputFormat) -> None:
    """Raises typer.BadParameter (exit code 2). Has headers read where a format names them."""
    if "keys" in folded(named):
        raise typer.BadParameter("--option keys: say it with --key")
    if form and output is OutputFormat.JSON:
        raise typer.BadParameter("--format is for text, and --output json has all of a record")
    if "%h" in form and "includeheaders" not in folded(named):
        named["includeHeaders"] = "true"


def _line(record: dict[str, Any], form: str) -> str:
    """A record as a format says, which may end with a line feed; without one, as in a table."""
    if not form:
        return one_line(" ".join(str(each) for each in _cells(record) if each is not None))
    headers = (f"{each['key']}={shown(each['value'])}" for each in record.get("headers") or ())
    told = {**record, "headers": ",".join(headers)}
    told |= {name: shown(record[name]) for name in ("key", "value") if name in record}
    if "timestamp" in record:
        told["timestamp"] //= 1000

    def text(token: re.Match[str]) -> str:
        return str(told.get(_FIELDS[token[1]], "")) if token[1] else _ESCAPES[token[0]]

    return _TOKEN.sub(text, form).removesuffix("\n")


def _found(reading: ReadPlan, last: int | None, follow: bool) -> Generator[dict[str, Any]]:
    """The records that a command line asks for, one by one."""
    yield from _read(reading) if last is None else _last(reading, last)
    if follow:
        yield from _new(reading)


def _last(reading: ReadPlan, most: int) -> Iterator[dict[str, Any]]:
    """The last records of each partition. Where offsets have none, or one with another key, the
    search begins further back."""
    for partition, span in sorted(reading.pending.items()):
        found: deque[dict[str, Any]] = deque()
        begin, size = span.until_offset, most
        while len(found) < most and begin > span.from_offset:
            begin = max(span.until_offset - size, span.from_offset)
            within = {partition: OffsetRange(begin, span.until_offset)}
            found = deque(_read(replace(reading, ranges=within)), most)
            size *= 8
        yield from found


def _new(reading: ReadPlan) -> Iterator[dict[str, Any]]:
    """What comes behind the ranges, also in new partitions, for as long as somebody asks."""
    from keyrange.kafka.position_lookup import bind
    from keyrange.kafka.subscribed_topics import describe, retrying

    cluster, options = reading.cluster, reading.options
    at = {partition: span.until_offset for partition, span in reading.ranges.items()}

    def ask() -> ReadPlan:
        view = describe(cluster, options.subscription)
        begins = {p: at.get(p, EARLIEST) for p in view.partitions()}
        ends = bind(cluster, view, dict.fromkeys(begins, LATEST))
        begins = bind(cluster, view, begins)
        ranges = {p: OffsetRange(min(begins[p], end), end) for p, end in ends.items()}
        return replace(reading, view=view, ranges=ranges)

    while True:
        more = retrying(cluster, options.fetch_offset_tries, options.fetch_offset_pause_ms, ask)
        yield from _read(more)
        at |= {partition: span.until_offset for partition, span in more.ranges.items()}
        if not more.pending:
            time.sleep(_PAUSE_S)


def _one_offset(offset: str, named: Mapping[str, str]) -> dict[str, str]:
    """The options that read one offset alone. Raises typer.BadParameter (exit code 2)."""
    topic, partition, at = read_record_id(offset, "--offset")
    ways = ("subscribe", "subscribepattern", "assign", "startingoffsets", "endingoffsets")
    if clash := [name for name in named if name.lower() in ways]:
        raise typer.BadParameter(f"--offset says where to read by itself: leave out {clash[0]}")
    return {
        "assign": json.dumps({topic: [partition]}),
        "startingOffsets": json.dumps({topic: {str(partition): at}}),
        "endingOffsets": json.dumps({topic: {str(partition): at + 1}}),
    }


def _check_in_log(reading: ReadPlan) -> None:
    """Raises INVALID_OPTIONS for an offset that is not in its partition's log."""
    for partition, wanted in reading.ranges.items():
        first, end = (
            reading.cluster.list_offsets(reading.view, {partition: which})[partition][0]
            for which in (EARLIEST, LATEST)
        )
        if not first <= wanted.from_offset < end:
            at = f"{partition}:{wanted.from_offset}"
            raise invalid_options(f"--offset {at} is not in the log, which holds [{first}, {end})")


def _read(reading: ReadPlan) -> Generator[dict[str, Any]]:
    """The records, one by one; it says on stderr how far it is when that takes a while."""
    from keyrange.kafka.fetching.fetch import SplitReader
    from keyrange.kafka.fetching.read_settings import read_settings
    from keyrange.kafka.record_sizes import RecordSizes
    from keyrange.ranges.model.range_plan import cut_by_bytes

    pending = reading.pending
    sizes = RecordSizes(reading.cluster).of(reading.view, pending)
    total = sum(span.size for span in pending.values())
    total_bytes = sum(span.size * sizes[partition] for partition, span in pending.items())
    reader = SplitReader(reading.cluster, reading.view, read_settings(reading.options))
    said, done, found = time.monotonic(), 0, 0
    read_values = _value_reader(reading)
    for splits in cut_by_bytes(pending, sizes, int(total_bytes / _PASS_BYTES) + 1):
        for batch in reader.read(splits):
            for record in _rows(batch, read_values(batch)):
                found += 1
                yield record
        done += sum(split.until_offset - split.from_offset for split in splits)
        if time.monotonic() - said > _PROGRESS_S and done < total:
            said = time.monotonic()
            note(f"looked through {done:,} of {total:,} offsets, found {found:,} records")


def _value_reader(reading: ReadPlan) -> Callable[[pa.RecordBatch], dict[str, list[Any]]]:
    """What reads keys and values of a batch by the options' formats: columns that are to be shown
    in the place of bytes, and why a record has none."""
    forms = reading.options.forms
    if not forms.columns:
        return lambda _: {}
    from keyrange.values.reading import ValueReader

    # A command shows what is there, whatever a query makes of it.
    reader = ValueReader(replace(forms, bad="column"), reading.options.registry)

    def read(batch: pa.RecordBatch) -> dict[str, list[Any]]:
        found, _ = reader.read(batch)
        bad = found.column(BAD_COLUMN).to_pylist()
        columns: dict[str, list[Any]] = {BAD_COLUMN: bad}
        for form in forms.columns:
            if form.column in found.schema.names:
                typed = _plain(found.column(form.column), form.column, bad)
                raw = batch.column(form.column).to_pylist()
                # What cannot be read is shown as it is.
                columns[form.column] = [
                    value if value is not None or why is None else payload
                    for value, payload, why in zip(typed, raw, bad, strict=True)
                ]
        if forms.rescued:
            columns[forms.rescued] = found.column(forms.rescued).to_pylist()
        if not any(bad):
            del columns[BAD_COLUMN]
        return columns

    return read


def _plain(column: pa.Array, name: str, bad: list[str | None]) -> list[Any]:
    """The values of a column as Python has them; of those that it does not have `bad` is told."""
    try:
        return column.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]
    except (ValueError, OverflowError):
        found: list[Any] = [None] * len(column)
    for row in range(len(column)):
        try:
            [found[row]] = column.slice(row, 1).to_pylist(maps_as_pydicts="lossy")
        except (ValueError, OverflowError):
            bad[row] = f"{name}: a time beyond those that this command can show"
    return found


def _rows(batch: pa.RecordBatch, read: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Rows as plain values, with what was read of keys and values; timestamps in microseconds,
    which may be of any year."""
    columns: dict[str, Sequence[Any]] = {}
    for name in (each for each in (*_COLUMNS, "headers") if each in batch.schema.names):
        column = batch.column(name)
        columns[name] = (column.cast("int64") if name == "timestamp" else column).to_pylist()
    columns |= read
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _json(record: dict[str, Any]) -> dict[str, Any]:
    shaped = record | {name: in_json(record[name]) for name in ("key", "value") if name in record}
    if "timestamp" in record:
        shaped["timestamp"] = iso(record["timestamp"] // 1000)
    if record.get("headers") is not None:
        shaped["headers"] = [[each["key"], in_json(each["value"])] for each in record["headers"]]
    return shaped


def _cells(record: dict[str, Any]) -> list[Any]:
    """A line of the table: a cell for each of the columns, whichever were read."""
    cells = {**record}
    for name in ("key", "value"):
        text = shown(record[name]) if name in record else ""
        long = len(text) > _CELL_CHARACTERS
        cells[name] = f"{text[:_CELL_CHARACTERS]}..." if long else text
    if "timestamp" in record:
        cells["timestamp"] = iso(record["timestamp"] // 1000)
    return [cells.get(name) for name in _COLUMNS]
