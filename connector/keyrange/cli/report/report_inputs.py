"""Where a report is from: the documents of other commands, read by the functions that those have.

Rule of this file: the checkpoint has to be there; whatever else cannot be read is said on the page.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any, Final

from keyrange.cli.checkpoint.commands import describe as describe_checkpoint
from keyrange.cli.checkpoint.export import choose_source
from keyrange.cli.commits.commands import known_ends, recent_events
from keyrange.cli.commits.commit_source import Live, ask, dead_letters_of, errors_of, open_commits
from keyrange.cli.commits.document import describe as describe_commits
from keyrange.cli.commits.document import gaps
from keyrange.cli.deadletters.documents import document
from keyrange.cli.members.document import ask as ask_members
from keyrange.cli.members.document import describe as describe_members
from keyrange.cli.members.document import events, open_table
from keyrange.cli.ranges.commands import describe_plan, sample
from keyrange.cli.report.document import (
    answers_of,
    history,
    last_events,
    query_state,
    ranges_of_batch,
)
from keyrange.cli.source_options import ReadPlan, names, storage_of
from keyrange.cli.values import iso, now, short_key
from keyrange.cli.volumes.commands import VolumeLooks
from keyrange.cli.watch.document import Seen
from keyrange.cli.watch.observers import PROGRESSES, Ends, ToldBatch, Where, told_of
from keyrange.errors import KeyrangeError, invalid_options
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.table.dead_letter_replay import chosen_letters, open_letters
from keyrange.kafka.open_transactions import held_back
from keyrange.model.offsets import LATEST
from keyrange.observing.progress_file import documents
from keyrange.options.key_ranges import KeyRangeOptions
from keyrange.options.option import rows_of
from keyrange.report.page_parts import Source, Sources, partition_name
from keyrange.report.sections.offsets import PENDING_MAX
from keyrange.storage.checkpoint_files import load_progress, open_directory
from keyrange.storage.directory import file_at
from keyrange.storage.model.spark_log import CheckpointProgress, untold
from keyrange.storage.object_store import FAILURES

_TAIL_BYTES: Final = 64 * 2**20
_COMMITS_MAX: Final = 50
_MEMBER_ROWS_MAX: Final = 50
_EPOCHS_MAX: Final = 8
_LETTERS_MAX: Final = 5_000
_PLANS_MAX: Final = 30
_LOOKS_PAUSE_MS: Final = 1_000

# Which option brings what is not on the page.
MISSING: Final = {
    "progress": "For the lag by time, and rows per second, duration and records of each batch, "
    "give the query's progress file with --progress FILE; "
    "keyrange.ProgressListener(progress_file=FILE) in the job writes it.",
    "ends": "For the lag as of now, name the cluster with --bootstrap-servers HOST:PORT.",
    "plans": "For bytes and read amplification of batches, give --progress FILE; or "
    "--bootstrap-servers HOST:PORT, with the query's own splitBy and parallelism as --option.",
    "commits": "For what is done of each key range, give the query's commitTable with "
    "--commits TABLE, if it has commitMode=individual.",
    "members": "For the owners of key ranges, give the query's memberTable with --members TABLE, "
    "if its key ranges belong to executors.",
    "letters": "For records that fail, and those that were given up, give the query's commitTable "
    "with --commits TABLE, or its deadLetterTable with --dead-letters TABLE.",
    "volumes": "For the brokers' volumes, give --option kafka.admin.bootstrap.servers=HOST:PORT; "
    "for the throttle factor also --option min.available.ratio=0.1 or min.available.bytes.",
}
# Options of the source by which a batch is planned.
_PLANNED_BY: Final = frozenset(
    {
        *(row.name.lower() for row in rows_of(KeyRangeOptions)),
        *("minpartitions", "mintasks", "bytespertask", "maxrecordsperpartition"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWhere(Where):
    """Where the documents are: of which source of the query, and of how many batches."""

    source: int | None
    batches: int
    letters: str

    @property
    def planned_by(self) -> dict[str, str]:
        """The options that say how a batch is planned."""
        return {name: each for name, each in self.named.items() if name.lower() in _PLANNED_BY}


class Collector:
    """Reads the documents, as often as it is asked. What cannot be read any more stays as it was
    read last, and says so."""

    def __init__(self, where: ReportWhere) -> None:
        self._where = where
        self._last: dict[str, Source] = {}
        # What is read with a document and is not in it: for the state of the query, and plans.
        self.ends: Ends | None = None
        self.told: Sequence[ToldBatch] = ()
        self.plans: dict[int, Any] = {}
        self._seen = Seen()
        # Two at first: what grows shows between them.
        self._looks = VolumeLooks(where.named, _LOOKS_PAUSE_MS, skipped=1)

    def collect(self) -> Sources:
        """Raises what `keyrange checkpoint show` raises."""
        where = self._where
        progress = load_progress(open_directory(where.checkpoint, storage_of(where.named)))
        source = choose_source(progress, where.source)
        described = describe_checkpoint(progress, where.batches)
        rows = [row for row in described["positions"] if row["source"] == source]
        read = self._read_all(progress, source)
        now_ms = now()
        answers = answers_of(progress, read, self.told, self.ends, now_ms)
        return Sources(
            query=where.checkpoint,
            at=iso(now_ms),
            state=query_state(where, answers, self._seen, now_ms),
            checkpoint={**described, "positions": rows},
            history=history(progress, source, where.batches),
            plans=Source(self.plans, missing="" if where.asks_kafka else MISSING["plans"]),
            **read,
        )

    def _read_all(self, progress: CheckpointProgress, source: int) -> dict[str, Source]:
        """The sources beside the checkpoint, by their names."""
        where = self._where
        end = progress.planned[-1].ends[source]
        source_id = end.commits.source_id if end and end.commits else ""
        commits = self._read("commits", where.commits, lambda: _commits(where, source_id))
        ends = self._read("ends", where.asks_kafka, lambda: _ends(where, progress, source, self))
        others: dict[str, tuple[object, Callable[[], Source]]] = {
            "progress": (where.progress, lambda: _events(where, source, progress, self)),
            "members": (where.members, lambda: _members(where, not ends.failure)),
            "letters": (where.letters or where.commits, lambda: _letters(where, commits.document)),
            "volumes": (where.asks_brokers, lambda: Source(self._looks())),
        }
        read = {name: self._read(name, *each) for name, each in others.items()}
        return {"commits": commits, "ends": ends, **read}

    def _read(self, name: str, wanted: object, read: Callable[[], Source]) -> Source:
        """A document, or why it is not there."""
        if not wanted:
            return Source(missing=MISSING[name])
        try:
            found = read()
        except (KeyrangeError, *FAILURES) as failure:
            is_own = isinstance(failure, KeyrangeError)
            text = str(failure) if is_own else f"{type(failure).__name__}: {failure}"
            found = self._last.get(name, Source())
            found = replace(found, failure=text, since=found.since or iso(now()), remarks=())
        self._last[name] = found
        return found


def _events(
    where: ReportWhere, source: int, progress: CheckpointProgress, beside: Collector
) -> Source:
    storage = storage_of(where.named)
    try:
        lines = _tail(where.progress, storage)
        with suppress(*FAILURES):
            # Where a full file was put aside.
            lines = _tail(f"{where.progress}.1", storage) + lines
    except FAILURES as failure:
        raise invalid_options(f"--progress {where.progress} cannot be read: {failure}") from None
    found = last_events(lines, source, progress.query_id, where.batches)
    of_query = (each for each in documents(reversed(lines)) if each.get("id") == progress.query_id)
    beside.told, _ = told_of(reversed([*islice(of_query, PROGRESSES)]))
    remarks = []
    last = found["events"][-1]["batch"] if found["events"] else None
    outdated = last is not None and untold(progress, last, now())
    if outdated:
        remarks.append(f"{where.progress} ends with batch {last}, and there were others since.")
    if not found["events"]:
        remarks.append(f"{where.progress} holds no batch of this query yet.")
    if found["others"]:
        remarks.append(f"{found['others']:,} batches of other queries are in the progress file.")
    if found["unreadable"]:
        remarks.append(f"{found['unreadable']:,} lines of the progress file could not be read.")
    return Source(found["events"], remarks=tuple(remarks), outdated=outdated)


def _tail(path: str, storage: Mapping[str, str]) -> list[bytes]:
    """The last lines of a file, which may be larger than what is worth reading."""
    directory, name = file_at(path, storage)
    with directory.open(name) as file:
        size = file.size()
        begin = max(size - _TAIL_BYTES, 0)
        file.seek(begin)
        lines = bytes(file.read(size - begin)).split(b"\n")
    return lines[1:] if begin else lines


def _commits(where: ReportWhere, source_id: str) -> Source:
    commits = open_commits(where.commits, where.group, source_id, where.named)
    known, now_ms = commits.table.known(), now()
    last = commits.last(known.seq)
    errors = errors_of(commits, where.named)
    named = {**where.named, "deadLetterTable": where.letters} if where.letters else where.named
    dead = dead_letters_of(commits, named, last.group if last else None)
    return Source(
        {
            "show": describe_commits(known, last, known_ends(commits, known), now_ms, errors, dead),
            # The oldest of each partition.
            "gaps": [
                gap
                for _, found in groupby(gaps(known, now_ms), key=partition_name)
                for gap in heapq.nlargest(PENDING_MAX, found, key=lambda row: row["age_ms"])
            ],
            "causes": causes(known),
            "history": recent_events(commits, 0, min(where.batches, _COMMITS_MAX)),
        }
    )


def causes(known: Snapshot) -> list[dict[str, Any]]:
    """How many records are pending for which cause, by how often they were delivered."""
    counts = Counter(
        (record.cause.name.lower(), record.deliveries)
        for state in known.states.values()
        for record in state.pending
    )
    return [
        {"cause": cause, "deliveries": deliveries, "records": records}
        for (cause, deliveries), records in sorted(counts.items())
    ]


def _ends(
    where: ReportWhere, progress: CheckpointProgress, source: int, beside: Collector
) -> Source:
    """Where the logs end, by Kafka. While it answers, it also tells of transactions and plans."""
    end = progress.planned[-1].ends[source]
    assert end is not None
    states = {p: fresh(end.topic_ids.get(p.topic, ""), at) for p, at in end.positions.items()}
    with ask(where.named, states, where.planned_by) as asked:
        # What the topics were given since the last batch is to be read too.
        all_of_topics = asked if names(where.named, "assign") else asked.with_added()
        found = all_of_topics.offsets_at(LATEST)
        held = held_back(asked.cluster, asked.view, asked.partitions)
        plans: dict[int, Any] = {}
        remarks = _plan(asked, progress, source, min(where.batches, _PLANS_MAX), plans)
    rows = [
        {**partition._asdict(), "offset": offset} for partition, offset in sorted(found.items())
    ]
    gone = sorted(states.keys() - found.keys())
    beside.ends, beside.plans = Ends(found, tuple(gone), held), plans
    if gone:
        remarks.append(f"{', '.join(map(str, gone))}: not in the cluster any more.")
    return Source({"at": iso(now()), "ends": rows}, remarks=tuple(remarks))


def _plan(
    asked: Live, progress: CheckpointProgress, source: int, batches: int, plans: dict[int, Any]
) -> list[str]:
    """The last batches as `keyrange ranges plan` would plan their offsets, by number; what is wrong
    with that is said."""
    sampled = None
    for batch in progress.planned[-batches:]:
        ranges = ranges_of_batch(progress, source, batch)
        if not ranges or not ranges.keys() <= asked.partitions:
            continue
        reading = ReadPlan(asked.options, asked.cluster, asked.view, ranges)
        sampled = sampled or sample(reading)
        try:
            plan = describe_plan(reading, sampled)
        except KeyrangeError as failure:
            return [f"Batches were not planned: {failure}"]
        plans[batch.batch_id] = {name: plan[name] for name in ("bytes", "read_amplification")}
    return []


def _members(where: ReportWhere, may_ask: bool) -> Source:
    members = open_table(where.members, where.named)
    rows = members.recent(_MEMBER_ROWS_MAX)
    live = None
    remarks: tuple[str, ...] = ()
    if where.asks_kafka and may_ask:
        try:
            live = ask_members(where.named, members.last)
        except KeyrangeError as failure:
            remarks = (f"The broker was not asked who is there: {failure}",)
    first = {row.epoch: row for row in reversed(rows) if row.epoch}
    epochs = [first[epoch] for epoch in sorted(first)[-_EPOCHS_MAX:]]
    document = {
        "list": describe_members(members.last, members.waiting, now(), live),
        "history": events(rows, members.table.commands()),
        "epochs": [describe_members(row, (), row.at_ms, None) for row in epochs],
    }
    return Source(document, remarks=remarks)


def _letters(where: ReportWhere, commits: Mapping[str, Any] | None) -> Source:
    """The dead letters of the query's group, without what the records hold."""
    letters = open_letters(where.commits, where.letters, storage_of(where.named))
    group = where.group or (commits["show"]["group"] or "" if commits is not None else "")
    found = chosen_letters(letters.read(), group)
    newest = heapq.nlargest(_LETTERS_MAX, found, key=lambda each: each.written_at_ms)
    names = ("topic", "partition", "offset", "written_at", "attempts", "cause", "status", "error")
    rows = []
    for each in newest:
        row = document(each)
        rows.append({name: row[name] for name in names} | {"key": short_key(each.key)})
    left = len(found) - len(rows)
    remarks = (f"{left:,} older dead letters are not here.",) if left else ()
    return Source(rows, remarks=remarks)
