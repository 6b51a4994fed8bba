"""What the sources of `keyrange watch` answer, made up: batches of topic `t`, one every 10 s."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from commands.documents import read_document
from keyrange.cli.watch.document import Seen, describe
from keyrange.cli.watch.observers import Answer, Answers, ToldBatch
from keyrange.model.offsets import TopicPartition
from keyrange.observing.model.query_progress import read_query_progress
from keyrange.storage.checkpoint_files import load_progress, open_directory
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch
from samples.progresses import progress, source

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BEGAN_MS = 1_750_000_000_000
EVERY_MS = 10_000


def answers(home: Path, batches: int, committed: int, **more: Any) -> Answers:
    """So many batches of 100 offsets, one every 10 s; the first `committed` of them are done."""
    make_checkpoint(home)
    for batch in range(batches):
        plan_batch(home, batch, at(batch), {"0": 60 * (batch + 1), "1": 40 * (batch + 1)})
        if batch < committed:
            commit_batch(home, batch)
    return Answers(Answer(load_progress(open_directory(str(home)))), **more)


def at(batch: int) -> int:
    return BEGAN_MS + batch * EVERY_MS


def told(*lags: int, **parts: Any) -> Answer[list[ToldBatch]]:
    """A progress for each batch; partition 0 is so far behind after it."""
    found = []
    for batch, lag in enumerate(lags):
        end = {"0": 60 * (batch + 1), "1": 40 * (batch + 1)}
        latest = end | {"0": end["0"] + lag}
        read = read_query_progress(progress(batch, source(end, latest, records=90, **parts)))
        assert read is not None
        found.append(ToldBatch(read, at(batch) + read.duration_ms))
    return Answer(found)


def look(given: Answers, now_ms: int, seen: Seen | None = None) -> dict[str, Any]:
    document = describe("/cp", given, seen or Seen(), now_ms)
    read: dict[str, Any] = read_document(json.dumps({"schema": "keyrange.watch/1", **document}))
    assert read == document
    return read


def individual(home: Path, committed: int, pending: int) -> Answers:
    """A batch up to the ends of both partitions, committed individually; of partition 0 the commit
    table says so much."""
    make_checkpoint(home)
    plan_batch(home, 0, at(0), {"0": 60, "1": 40}, log_ends={})
    commit_batch(home, 0)
    oldest = {"offset": committed, "since": "2025-06-15T15:06:41.000+00:00", "age_ms": 1_000}
    partition = {
        "topic": "t",
        "partition": 0,
        "committed": committed,
        "pending": pending,
        "deliveries_max": 1,
        "oldest_pending": oldest if pending else None,
    }
    commits = {
        "seq": 1,
        "committed_at": None,
        "dead_letters": 0,
        "dead_timers": 0,
        "pending_by_error": kinds("KeyError", pending, committed) if pending else [],
        "partitions": [partition],
    }
    return Answers(Answer(load_progress(open_directory(str(home)))), commits=Answer(commits))


def kinds(error: str, records: int, offset: int) -> list[dict[str, Any]]:
    """What `commits show` says of pending records that all failed with one error."""
    found = {"cause": "rejected", "error": error, "records": records}
    return [{**found, "topic": "t", "partition": 0, "offset": offset, "place": None}]
