"""A query as it lies on a disk: checkpoint, commit table, members, dead letters and progress file,
as `keyrange report` reads them; and documents of very many key ranges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from keyrange.cli.commits.document import LogEnd, describe, gaps
from keyrange.cli.report import report_inputs
from keyrange.cli.report.report_inputs import Collector, ReportWhere, causes
from keyrange.cli.values import iso
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.individual_commits.table.dead_letters import DeadLetter, open_dead_letters
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.options.commits import CommitOptions
from keyrange.report.page_parts import QueryState, Source, Sources
from keyrange.work.model.outcome import Cause
from samples.commit_samples import BATCH_MS, BEGAN_MS, GROUP, QUERY, SOURCE, TOPIC_ID, Query
from samples.member_samples import append_all, assignment, member, owned, stored, table_at

BATCHES = 40
RECORDS = 400
# A text that would run in a page that does not escape it.
HOSTILE = "</script><img src=x onerror=\"window.ran='yes'\"><b>%{x}</b>'\"&lt;"


CAUGHT_UP = QueryState(
    text="caught up",
    level="good",
    causes=["nothing is left to read"],
    advice="Nothing needs to be done.",
    facts=[("batch", "batch 1 done")],
)


WORKING = QueryState(
    text="working",
    level="warning",
    causes=["20,000 records are not done, the oldest for 2 h 0 min: offset 5 of flights-0"],
    advice="The command lists these records.",
    command="keyrange commits gaps /lake/commits --limit 5",
    facts=[("batch", "batch 1 under way for 4 s"), ("pending", "20,000 pending")],
)


class Lake:
    """Everything of one query below a directory. Its last batch is not committed yet unless it
    `is_done`; of `fails` records the function fails at first, in `held` batches the volume guard
    lets in a tenth, and at the end `tail` offsets of a partition are not read, None for some."""

    def __init__(
        self,
        path: Path,
        error: str = "ValueError: no such carrier",
        *,
        fails: float = 0.02,
        is_done: bool = False,
        held: range = range(11, 15),
        tail: int | None = None,
    ) -> None:
        self.path = path
        self._held, self._last_tail = held, tail
        self.checkpoint, self.progress = path / "checkpoint", path / "progress.jsonl"
        self.commits, self.members = path / "commits", path / "members"
        self.random = Random(7)
        self.query = Query(3, 16, fails=fails, heals=0.35)
        self.ends: list[tuple[int, dict[TopicPartition, int], dict[TopicPartition, int]]] = []
        for number in range(BATCHES):
            self.query.batch(RECORDS, self._tail(number))
            ends = {each: state.position for each, state in self.query.states.items()}
            latest = {
                each: at + self._tail(number) * (each.partition + 1) // 2
                for each, at in ends.items()
            }
            self.ends.append((self.query.now_ms, ends, latest))
        if not is_done:
            planned = {each: at + RECORDS for each, at in self.ends[-1][1].items()}
            self.ends.append((self.query.now_ms + BATCH_MS, planned, self.ends[-1][2]))
        self._write_checkpoint()
        self._write_commits(error)
        self._write_members()
        lines = [self.line(number) for number in range(BATCHES)]
        self.progress.write_text("".join(f"{line}\n" for line in lines))

    @property
    def places(self) -> dict[str, str]:
        """The same as a report is told it."""
        return {
            "checkpoint": str(self.checkpoint),
            "progress": str(self.progress),
            "commits": str(self.commits),
            "members": str(self.members),
        }

    def options(self) -> list[str]:
        """The arguments of the command that names all of it."""
        return [
            str(self.checkpoint),
            *("--commits", str(self.commits), "--members", str(self.members)),
            *("--progress", str(self.progress)),
        ]

    def _tail(self, number: int) -> int:
        """Offsets that were not read yet: more and more, and then fewer."""
        if number == BATCHES - 1 and self._last_tail is not None:
            return self._last_tail
        return 900 + 150 * min(number, max(60 - 2 * number, -3)) + number % 7 * 40

    def _write_checkpoint(self) -> None:
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
        for number, (at_ms, ends, latest) in enumerate(self.ends):
            mark = {"seq": number + 1, "sourceId": SOURCE, "logEnds": nested(latest)}
            extra: dict[str, Any] = {
                "version": 1,
                "commits": mark,
                "topicIds": {"flights": TOPIC_ID},
            }
            if number == 0:
                extra["initial"] = nested(dict.fromkeys(ends, 0))
            text = json.dumps({"@keyrange": extra, **nested(ends)})
            head = json.dumps({"batchTimestampMs": at_ms})
            (self.checkpoint / f"offsets/{number}").write_text(f"v1\n{head}\n{text}")
            if number < BATCHES:
                (self.checkpoint / f"commits/{number}").write_text("v1\n{}")

    def _write_commits(self, error: str) -> None:
        letters = f"{self.commits}_dead_letters"
        options = CommitOptions(individual=True, table=str(self.commits), dead_letter_table=letters)
        table = open_commit_table(options, SOURCE)
        for commit in self.query.table.store:
            table.append(commit)
        errors = [error, "KeyError: 'tail number'", "TimeoutError: the service did not answer"]
        found = [
            DeadLetter(
                group=GROUP,
                source_id=SOURCE,
                query_id=QUERY,
                batch_id=3,
                topic="flights",
                topic_id=TOPIC_ID,
                partition=partition.partition,
                offset=record.offset,
                key=f"N{record.offset}<i>".encode(),
                value=b"what nobody may see",
                error=errors[record.offset % 5 % 3],
                cause=Cause.REJECTED,
                attempts=3,
            )
            for partition, pending in self.query.dead.items()
            for record in pending
        ]
        open_dead_letters(options).append(SOURCE, 3, found, self.query.now_ms)

    def _write_members(self) -> None:
        """A member joins, is away, is taken out, and another one comes."""
        a, b, c, d = (f"orders-{number}" for number in range(4))
        partitions = sorted(self.query.states)
        steps = (
            ("the first assignment", (a, b), (a, b)),
            (f"{c} joined", (a, c, b), (a, b, c)),
            (f"{c} is absent for 900 s", (a, b), (a, b)),
            ("a rebalance was asked for", (a, d, b), (a, b, d)),
        )
        rows = []
        for epoch, (reason, slots, there) in enumerate(steps, 1):
            owners = {each: owned(*slots) for each in partitions}
            rows.append(
                stored(
                    epoch,
                    epoch=epoch,
                    members=[member(slot, at_ms=BEGAN_MS + epoch * 60_000) for slot in there],
                    at_ms=BEGAN_MS + epoch * 60_000,
                    reason=reason,
                    assignment=assignment(epoch, owners),
                )
            )
        append_all(table_at(self.members), rows)

    def line(self, number: int, **more: Any) -> str:
        """The line of a batch in the progress file, with an offset as text and others parsed."""
        at_ms, ends, latest = self.ends[number]
        before = self.ends[number - 1][1] if number else dict.fromkeys(ends, 0)
        own = 12 - number % 3
        metrics = {
            "plan": {"number": number, "bytes": 250_000, "fetchedBytes": 260_000 + 9_000 * own},
            "commits": {"pending": number},
            "members": {"ownPortions": own, "foreignPortions": 12 - own, "unownedPortions": 0},
            "volumes": {
                "throttleFactor": 0.1 if number in self._held else 1.0,
                "why": "broker 1 /d has little left",
                "partitionsHeld": 3 if number in self._held else 0,
            },
        }
        source = {
            "description": "keyrange",
            "startOffset": nested(before),
            "endOffset": json.dumps(nested(ends)),
            "latestOffset": {**nested(latest), "@keyrange": {"metrics": metrics}},
            "numInputRows": 3 * RECORDS + number,
        }
        document = {
            "id": QUERY,
            "runId": "run-1",
            "batchId": number,
            "timestamp": iso(at_ms)[:23] + "Z",
            "batchDuration": 2_000 + 137 * (number % 9),
            "numInputRows": 3 * RECORDS + number,
            "sources": [source],
        }
        return json.dumps(document | more)


def small_checkpoint(path: Path) -> Path:
    """A checkpoint of one batch of one partition, which is committed."""
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True)
    (path / "metadata").write_text(json.dumps({"id": QUERY}))
    extra = {"version": 1, "initial": {"flights": {"0": 1}}}
    text = json.dumps({"@keyrange": extra, "flights": {"0": 5}})
    head = json.dumps({"batchTimestampMs": BEGAN_MS})
    (path / "offsets/0").write_text(f"v1\n{head}\n{text}")
    (path / "commits/0").write_text("v1\n{}")
    return path


def samples(path: Path) -> dict[str, Sources]:
    """What reports are about, by a name: a query that is caught up, one whose batch hangs behind
    records that fail, one that the volume guard holds back, one of a single batch, one of very
    many key ranges."""
    healthy = Lake(path / "healthy", fails=0, is_done=True, tail=0, held=range(0))
    broken = Lake(path / "broken")
    held = Lake(path / "held", fails=0, is_done=True, tail=9_000, held=range(BATCHES - 6, BATCHES))
    last_ms = BEGAN_MS + BATCHES * BATCH_MS
    return {
        "healthy": read_at(last_ms + 4_000, **alone(healthy)),
        "broken": read_at(last_ms + 25 * 60_000, **broken.places),
        "held": read_at(last_ms + 10 * 60_000, **alone(held)),
        "one": read_at(BEGAN_MS + 4_000, **one_batch(path / "one")),
        "many": many_ranges(10_000),
    }


def alone(lake: Lake) -> dict[str, str]:
    """Without individual commits and members, as most queries are."""
    return {name: each for name, each in lake.places.items() if name in ("checkpoint", "progress")}


def one_batch(path: Path) -> dict[str, str]:
    """Where a query of one batch has what there is of it."""
    checkpoint, progress = small_checkpoint(path / "checkpoint"), path / "progress.jsonl"
    source = {
        "startOffset": {"flights": {"0": 1}},
        "endOffset": {"flights": {"0": 5}},
        "latestOffset": {"flights": {"0": 5}, "@keyrange": {"metrics": {}}},
        "numInputRows": 4,
    }
    line = {
        "id": QUERY,
        "runId": "run-1",
        "batchId": 0,
        "timestamp": iso(BEGAN_MS)[:23] + "Z",
        "batchDuration": 1_200,
        "numInputRows": 4,
        "sources": [source],
    }
    progress.write_text(f"{json.dumps(line)}\n")
    return {"checkpoint": str(checkpoint), "progress": str(progress)}


def read_at(now_ms: int, **places: Any) -> Sources:
    """The sources of a page that is made at a time."""
    usual: dict[str, Any] = {"source": None, "batches": 200, "letters": "", "named": {}}
    with patch.object(report_inputs, "now", lambda: now_ms):
        return Collector(ReportWhere(**usual | places)).collect()


def nested(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for each, at in sorted(positions.items()):
        found.setdefault(each.topic, {})[str(each.partition)] = at
    return found


def sources(**known: Source) -> Sources:
    """The sources of a page; of a query of two partitions where nothing else is known."""
    positions = [
        {"source": 0, "topic": "flights", "partition": number, "committed": 90, "planned": 100,
         "from_offset": 90}
        for number in (0, 1)
    ]  # fmt: skip
    checkpoint = {
        "query_id": QUERY,
        "last_planned": 1,
        "last_committed": 0,
        "planned_not_committed": [1],
        "sources": [],
        "positions": positions,
        "batches": [],
    }
    history = [
        batch(0, "committed", 90, log_end=None),
        batch(1, "planned", 100, log_end=None),
    ]
    names = ("progress", "ends", "plans", "commits", "members", "letters", "volumes")
    usual = {name: Source(missing=f"--{name}") for name in names}
    usual |= known
    return Sources(
        query="/lake/checkpoint",
        at=iso(BEGAN_MS),
        state=CAUGHT_UP,
        checkpoint=checkpoint,
        history=history,
        **usual,
    )


def batch(number: int, state: str, at: int, log_end: int | None) -> dict[str, Any]:
    rows = [
        {"topic": "flights", "partition": each, "offset": at, "log_end": log_end} for each in (0, 1)
    ]
    at_ms = BEGAN_MS + number * BATCH_MS
    return {
        "batch": number, "at": iso(at_ms), "at_ms": at_ms, "state": state, "offsets": 20,
        "positions": rows,
    }  # fmt: skip


def many_ranges(count: int, partitions: int = 1, pending: int = 2) -> Sources:
    """A query of so many key ranges, all of which stand elsewhere and have pending records."""
    chance = Random(3)
    states, rows = {}, []
    position = 1_000_000
    for number in range(partitions):
        pieces = []
        for span in split_evenly(SPACE, count // partitions):
            scanned = position - chance.randrange(20_000)
            offsets = sorted(chance.sample(range(scanned - 300_000, scanned), pending))
            found = tuple(
                PendingRecord(each, span.from_hash + at, 1 + at % 4, 0, BEGAN_MS - at * 1000)
                for at, each in enumerate(offsets)
            )
            pieces.append(KeyRangeState(span, scanned, found))
        partition = TopicPartition("flights", number)
        # Two ranges of one partition have no pending record in common.
        taken: set[int] = set()
        unique = [_without(piece, taken) for piece in pieces]
        states[partition] = PartitionState(TOPIC_ID, position, tuple(unique))
        rows.append({"source": 0, "topic": "flights", "partition": number, "committed": 900_000,
                     "planned": 1_010_000, "from_offset": 900_000})  # fmt: skip
    known = Snapshot(7, columns_of(states), 6, "run-1", None)
    ends = {each: LogEnd(1_200_000, "batch") for each in states}
    document = {
        "show": describe(known, None, ends, BEGAN_MS),
        "gaps": list(gaps(known, BEGAN_MS)),
        "causes": causes(known),
        "history": [],
    }
    made = sources(commits=Source(document))
    checkpoint = {**made.checkpoint, "positions": rows}
    return replace(made, state=WORKING, checkpoint=checkpoint, history=[])


def _without(piece: KeyRangeState, taken: set[int]) -> KeyRangeState:
    pending = tuple(record for record in piece.pending if record.offset not in taken)
    taken.update(record.offset for record in pending)
    return KeyRangeState(piece.span, piece.scanned, pending)
