"""`keyrange state verify --function` reads the log once more, and says which keys differ. Also what
differs between two states, and states as documents have them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from keyrange.cli.commits.commit_source import letters_table
from keyrange.cli.render import note, print_table, print_text, print_words, table_of
from keyrange.cli.source_options import ReadPlan, of_batch, open_reading, storage_of
from keyrange.cli.values import in_json, iso
from keyrange.errors import invalid_options
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import OffsetRange, TopicPartition, by_topic, nested
from keyrange.model.timers import NEVER, earliest
from keyrange.model.watermarks import BEGIN, PartitionTime
from keyrange.report.page_parts import partition_name
from keyrange.text.formats import number
from keyrange.values.forms import value_forms

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.individual_commits.table.commit_admin import Commits
    from keyrange.individual_commits.table.dead_letters import DeadLetter
    from keyrange.individual_commits.table.keyed_state_rows import StoredState
    from keyrange.work.state_in_memory import FoldedState

_SPANS: Final = 64


def differences(
    before: StoredState, after: StoredState | FoldedState, partition: TopicPartition
) -> Iterator[tuple[bytes, Any, Any]]:
    """Key by key; a part of the keys is in memory at once."""
    from keyrange.individual_commits.table.keyed_state_rows import plain_rows

    for span in split_evenly(SPACE, _SPANS):
        was, is_now = (
            dict(
                pair
                for block in state.rows(partition, span)
                for pair in plain_rows(block, state.form)
            )
            for state in (before, after)
        )
        for key in sorted(was.keys() | is_now.keys()):
            pair = was.get(key), is_now.get(key)
            if differ(*pair):
                yield key, *pair


def differ(one: Any, other: Any) -> bool:
    """Whether two states are not the same: NaN is what it was, though no number equals it."""
    return bool(one != other and repr(one) != repr(other))


def state_row(partition: TopicPartition, key: bytes, **states: Any) -> dict[str, Any]:
    """A key as documents have it, with its states by the names that they give them."""
    told = {name: jsonable(state) for name, state in states.items()}
    return {**partition._asdict(), "key": in_json(key), **told}


def print_states(rows: Sequence[Mapping[str, Any]], **titles: str) -> None:
    """A line for each row of `state_row`; `titles` of the columns of its states."""
    shown = [{name: "none" if row[name] is None else row[name] for name in row} for row in rows]
    of_states = {title: name for name, title in titles.items()}
    print_table("Keys", *table_of({"partition": partition_name, "key": "key", **of_states}, shown))


def described(
    stored: StoredState,
    partition: TopicPartition,
    keys: int | None,
    known: Snapshot,
    own: Sequence[TopicPartition],
) -> dict[str, Any]:
    """Of the partitions that share the state, `own`, the slowest says how far time has come."""
    runs = stored.runs[partition]
    times = [known.times[each] for each in own if each in known.times]
    watermarks = [each.watermark for each in times if each.watermark is not None]
    timer_us, retry_ms = earliest(known.times.get(partition, PartitionTime()).timers)
    return {
        **partition._asdict(),
        "keys": keys,
        "rows": sum(run.rows for run in runs),
        "bytes": sum(run.size_bytes for run in runs),
        "files": len({run.file for run in runs}),
        "watermark": _shown(min((each.at_us for each in watermarks), default=BEGIN)),
        "late": sum(each.late for each in times),
        "pending": sum(len(known.states[each].pending) for each in own),
        "next_timer": iso(timer_us // 1000) if -NEVER < timer_us < NEVER else None,
        "next_retry": iso(retry_ms) if retry_ms < NEVER else None,
        "runs": [
            {
                "file": run.file,
                "lo": run.span.from_hash,
                "hi": run.span.until_hash - 1,
                "from_seq": run.from_seq,
                "until_seq": run.until_seq,
                "rows": run.rows,
                "bytes": run.size_bytes,
            }
            for run in runs
        ],
    }


def _shown(at_us: int) -> str | None:
    return None if at_us == BEGIN else iso(at_us // 1000)


def jsonable(value: Any) -> Any:
    if isinstance(value, bytes | float):
        return in_json(value)
    if isinstance(value, dict):
        return {name: jsonable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)


KEYED_MODES: Final = ("record", "arrow")
_SHOWN: Final = 20
_PROGRESS_S: Final = 2.0


def find_function(name: str) -> Callable[..., Any]:
    """A user's function as MODULE:NAME, also of a module in this directory. Raises
    typer.BadParameter (exit code 2)."""
    from keyrange.jobs.named_function import named_function

    sys.path.insert(0, os.getcwd())
    try:
        return named_function(name)
    except ValueError as failure:
        raise typer.BadParameter(f"--function {failure}") from None


def verify_fold(
    commits: Commits,
    known: Snapshot,
    stored: StoredState,
    function: Callable[..., Any],
    mode: str,
    from_seq: int | None,
    named: Mapping[str, str],
) -> dict[str, Any]:
    """What comes of the log, beside what is stored, as a document. Raises what reading does."""
    from keyrange.individual_commits.table.dead_letter_replay import open_letters
    from keyrange.individual_commits.table.keyed_state_fold import StateFold, plan_fold
    from keyrange.values.reading import reader_of

    if known.scope.is_shared:
        # In which order a batch read the records of two topics stands nowhere.
        text = "--function is not for topics that share the state of their keys (state.topic)"
        raise invalid_options(text)
    plan = plan_fold(commits, known, stored, from_seq)
    base = stored.at(plan.base, stored.time_ms)
    work = StateFold(plan, base, stored.form, function, mode)
    if plan.spans:
        with open_reading(_options(named, plan.spans)) as reading:
            forms = value_forms(reading.options)
            work.run(_batches(reading), reader_of(forms, reading.options.registry))
    letters: list[DeadLetter] = []
    if plan.dead:
        # Records that are done, and have changed nothing.
        stored_letters = open_letters(commits.path, letters_table(named), storage_of(named))
        letters = stored_letters.read(source_id=commits.source_id)
    left_out = {(each.topic, each.partition, each.key) for each in letters if each.key}
    given_up = {(each.topic, each.partition, each.offset) for each in letters}
    failed = [each for each in work.failures if (*each[0], each[1]) not in given_up]
    keys = 0
    rows: list[dict[str, Any]] = []
    for partition in sorted(stored.runs):
        for key, found, expected in differences(stored, work.states, partition):
            if (*partition, key) in left_out:
                continue
            keys += 1
            if len(rows) < _SHOWN:
                rows.append(state_row(partition, key, stored=found, expected=expected))
    failures = [
        {**partition._asdict(), "offset": offset, "error": text}
        for partition, offset, text in failed[:_SHOWN]
    ]
    return {
        "from_seq": plan.from_seq,
        "records": work.records,
        "left_out": len(left_out),
        "failed": len(failed),
        "failures": failures,
        "differing": keys,
        "keys": rows,
    }


def _options(
    named: Mapping[str, str], spans: Mapping[TopicPartition, OffsetRange]
) -> dict[str, str]:
    """The options that read these offsets, with the columns that functions get."""
    assigned = by_topic(spans)
    replaced = ("subscribe", "assign", "starting", "ending", "commitmode")
    left = {n: value for n, value in of_batch(named).items() if not n.lower().startswith(replaced)}
    # Of keys with dead letters nothing is said.
    bad = [name for name in left if name.lower() == "badvalues"]
    left |= {name: "null" for name in bad if left[name].lower() == "deadletter"}
    return left | {
        "assign": json.dumps({topic: [n for n, _ in each] for topic, each in assigned.items()}),
        "startingOffsets": json.dumps(nested({p: s.from_offset for p, s in spans.items()})),
        "endingOffsets": json.dumps(nested({p: s.until_offset for p, s in spans.items()})),
        "includeKeyHash": "true",
    }


def _batches(reading: ReadPlan) -> Iterator[pa.RecordBatch]:
    """The records of one partition after the other; on stderr how far it is when that takes a
    while."""
    from keyrange.kafka.fetching.fetch import SplitReader
    from keyrange.kafka.fetching.read_settings import read_settings
    from keyrange.model.offset_splits import Split

    reader = SplitReader(reading.cluster, reading.view, read_settings(reading.options))
    total = sum(span.size for span in reading.pending.values())
    said, done = time.monotonic(), 0
    for partition, span in sorted(reading.pending.items()):
        for batch in reader.read([Split(partition, span.from_offset, span.until_offset, 0)]):
            yield batch
            last = batch.column("offset")[-1].as_py()
            if time.monotonic() - said > _PROGRESS_S:
                said = time.monotonic()
                note(f"folded {done + last - span.from_offset:,} of {total:,} offsets")
        done += span.size


def print_fold(found: Mapping[str, Any]) -> None:
    records, since = number(found["records"]), found["from_seq"]
    print_words(f"{records} records folded from the state at commit {since} on")
    if not found["records"]:
        print_text("nothing was computed once more: no record was done since, or none has a key")
        return
    if found["left_out"]:
        print_words(f"{number(found['left_out'])} keys with dead letters are left out")
    if found["failed"]:
        print_words(
            f"the function failed with {number(found['failed'])} records that are done, so what "
            "is expected of their keys is not known: is it the job's function, and are the "
            "options of keys and values the job's?"
        )
    for each in found["failures"]:
        place = f"{partition_name(each)}, offset {each['offset']}"
        print_words(f"  the function failed at {place}: {each['error']}")
    if not found["differing"]:
        print_text("what is stored is what the function makes of the log")
        return
    print_words(f"{number(found['differing'])} keys differ")
    print_states(found["keys"], stored="stored", expected="expected")
