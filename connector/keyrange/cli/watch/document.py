"""What `keyrange watch` prints, as plain documents: `--output json` has them as they are, and the
screens show the same.

Rule of this file: no clock and no source. What was answered, and what time it is, comes in; the
documents of other commands are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from keyrange.cli.checkpoint.commands import describe as describe_checkpoint
from keyrange.cli.values import iso, ms_of
from keyrange.cli.watch.reasons import RATE_MS, describe_held, judged, late_after_ms
from keyrange.model.offsets import TopicPartition
from keyrange.observing.model.catching_up import LagAt, catching_up
from keyrange.observing.model.lag import offsets_behind, total_behind
from keyrange.observing.model.query_progress import state_figures
from keyrange.storage.model.spark_log import untold
from keyrange.text.formats import span

if TYPE_CHECKING:
    from keyrange.cli.watch.observers import Answers, ToldBatch
    from keyrange.observing.model.query_progress import QueryProgress


# By how much clocks of hosts may differ without a word.
_AHEAD_MS: Final = 10_000


@dataclass(slots=True)
class Seen:
    """The read lags of earlier looks at a broker, for how fast they change."""

    window_ms: int = 600_000
    lags: list[LagAt] = field(default_factory=list)

    def add(self, at_ms: int, offsets: int) -> None:
        self.lags = [each for each in self.lags if at_ms - each.at_ms <= self.window_ms]
        self.lags.append(LagAt(at_ms, offsets))

    def all_read_ms(self, now_ms: int) -> int | None:
        """How long ago there was nothing to read; None where that was not seen."""
        return min((now_ms - each.at_ms for each in self.lags if each.offsets == 0), default=None)


def describe(location: str, answers: Answers, seen: Seen, now_ms: int) -> dict[str, Any]:
    """One look. `seen` is added to where the broker was asked."""
    progress = answers.checkpoint.value
    assert progress is not None
    checkpoint = describe_checkpoint(progress, len(progress.planned))
    told = answers.progress.value or []
    last = told[-1].progress if told else None
    outdated = last is not None and untold(progress, last.batch_id, now_ms)
    if outdated:
        # Of what the query does now it says nothing.
        told = []
    partitions = _partitions(checkpoint, told, answers, now_ms)
    batch = _batch(checkpoint, told, now_ms)
    lag = _lag(partitions, batch, answers, told, seen, now_ms)
    document = {
        "at": iso(now_ms),
        "checkpoint": location,
        "query_id": checkpoint["query_id"],
        "name": last.name or None if last else None,
        "state": "unknown",
        "stuck_since": None,
        "why": [],
        "batch": batch,
        "rate": _rate(checkpoint["batches"], batch, told, now_ms),
        "lag": lag,
        "commits": _commits(answers),
        "members": _members(answers),
        "throttle": _throttle(answers, told),
        "state_of_keys": state_figures(told[-1].progress) if told else None,
        "partitions": partitions,
        "failures": [*_failures(answers, last if outdated else None), *_clocks(batch, now_ms)],
    }
    return document | judged(document, answers, seen.all_read_ms(now_ms))


def _partitions(
    checkpoint: Mapping[str, Any], told: Sequence[ToldBatch], answers: Answers, now_ms: int
) -> list[dict[str, Any]]:
    """Each partition of each source, the one that is behind most first."""
    ends, gone = _ends(told, answers)
    broker, commits = answers.broker.value, answers.commits.value
    held = broker.held if broker is not None else {}
    states = {
        TopicPartition(each["topic"], each["partition"]): each
        for each in (commits or {}).get("partitions", ())
    }
    # Of these the table alone knows how far they are committed.
    individual = {
        each["source"] for each in checkpoint["sources"] if each["commit_mode"] == "individual"
    }
    sources = {row["topic"]: row["source"] for row in checkpoint["positions"]}
    known = {TopicPartition(row["topic"], row["partition"]) for row in checkpoint["positions"]}
    # What a topic was given since the last batch is read from its start.
    unread = {"committed": 0, "planned": None}
    added = [
        {"source": sources[each.topic], **each._asdict(), **unread}
        for each, end in ends.items()
        if each not in known and each.topic in sources and end
    ]
    rows = []
    for row in [*checkpoint["positions"], *added]:
        place = TopicPartition(row["topic"], row["partition"])
        read_to = row["committed"] if row["committed"] is not None else row["from_offset"]
        log_end, state = ends.get(place), states.get(place)
        unknown = row["source"] in individual and commits is None
        committed = state["committed"] if state else None if unknown else read_to
        rows.append(
            {
                "source": row["source"],
                **place._asdict(),
                "read_to": read_to,
                "planned": row["planned"],
                "committed": committed,
                "log_end": log_end,
                "read_lag": offsets_behind(read_to, log_end),
                "commit_lag": offsets_behind(committed, log_end),
                "pending": state["pending"] if state else None,
                "gone": place in gone,
                "held_back": describe_held(held[place], now_ms) if place in held else None,
            }
        )
    return sorted(rows, key=lambda row: (-most_behind(row), row["topic"], row["partition"]))


def most_behind(row: Mapping[str, Any]) -> int:
    """The larger lag of a partition; 0 where none is known."""
    return max(row["read_lag"] or 0, row["commit_lag"] or 0)


def _ends(
    told: Sequence[ToldBatch], answers: Answers
) -> tuple[dict[TopicPartition, int], frozenset[TopicPartition]]:
    """Where partitions end, by the broker, and what it does not tell by the last progress, or by
    the last batch of a query that commits individually."""
    found: dict[TopicPartition, int] = {}
    planned, asked = answers.checkpoint.value, answers.broker.value
    if told:
        for source in told[-1].progress.sources:
            found |= source.ends
    elif planned is not None:
        for end in planned.planned[-1].ends:
            found |= end.log_ends if end is not None else {}
    return (found | {**asked.offsets}, frozenset(asked.gone)) if asked else (found, frozenset())


def _batch(checkpoint: Mapping[str, Any], told: Sequence[ToldBatch], now_ms: int) -> dict[str, Any]:
    """The last batch; `for_ms` is since it was planned, `usual_ms` what batches take and
    `every_ms` what lies between two."""
    planned = [ms_of(row["planned_at"]) for row in checkpoint["batches"]]
    done = {each.progress.batch_id: each for each in told}
    durations = [each.progress.duration_ms for each in told]
    pauses = [after - before for before, after in pairwise(planned)]
    last = done.get(checkpoint["last_planned"])
    return {
        "last_planned": checkpoint["last_planned"],
        "last_committed": checkpoint["last_committed"],
        "planned_not_committed": checkpoint["planned_not_committed"],
        "planned_at": checkpoint["batches"][-1]["planned_at"],
        "for_ms": max(now_ms - planned[-1], 0),
        "done_at": iso(last.done_ms) if last is not None else None,
        "usual_ms": int(median(durations or pauses)) if durations or pauses else None,
        "every_ms": int(median(pauses)) if pauses else None,
    }


def _rate(
    batches: Sequence[Mapping[str, Any]],
    batch: Mapping[str, Any],
    told: Sequence[ToldBatch],
    now_ms: int,
) -> dict[str, Any]:
    """What was read of late. By the checkpoint it is offsets, from when a batch was planned; by the
    progress it is records and, as far as a sample tells, bytes. A query that is late does not
    move: what it read before says nothing of now."""
    moved_at = batch["done_at"] or batch["planned_at"]
    still_ms = now_ms - ms_of(moved_at)
    if still_ms > late_after_ms(batch):
        none = 0.0 if told else None
        return {
            "not_moving_since": moved_at,
            "over_ms": still_ms,
            "offsets_per_s": 0.0,
            "records_per_s": none,
            "bytes_per_s": none,
        }
    begins = [ms_of(row["planned_at"]) for row in batches]
    # Where the oldest batch on file began is on file no more; a listener may know of fewer.
    first = int(batches[0]["offsets"] is None and len(batches) > 1)
    since = told[0].progress.batch_id if told else 0
    for number, at in enumerate(begins):
        if now_ms - at >= RATE_MS or (batches[number]["batch"] <= since and number > first):
            first = number
    window = [row for row in batches[first:] if row["state"] == "committed"]
    offsets = [row["offsets"] for row in window]
    over_ms = max(now_ms - begins[first], 1)
    known = None if None in offsets else sum(offsets)
    recent = [each.progress for each in told if each.done_ms > now_ms - over_ms]
    records = sum(each.records for each in recent)
    # Each tells of the batch before it.
    read = sum(each.sum_of("plan", "bytes") or 0.0 for each in recent)
    return {
        "not_moving_since": None,
        "over_ms": over_ms,
        "offsets_per_s": None if known is None else round(known / over_ms * 1000, 1),
        "records_per_s": round(records / over_ms * 1000, 1) if told else None,
        "bytes_per_s": round(read / over_ms * 1000, 1) if told else None,
    }


def _lag(
    partitions: Sequence[Mapping[str, Any]],
    batch: Mapping[str, Any],
    answers: Answers,
    told: Sequence[ToldBatch],
    seen: Seen,
    now_ms: int,
) -> dict[str, Any]:
    """The read lag and the commit lag, and where the read lag goes. `known_by` says whether ends
    are those of `now`, asked of the broker, or of when the last `batch` was planned."""
    read = total_behind(row["read_lag"] for row in partitions)
    broker = answers.broker
    lags = [LagAt(each.done_ms, lag) for each in told if (lag := each.progress.lag) is not None]
    age_ms = max(now_ms - told[-1].done_ms, 0) if told else batch["for_ms"]
    live = broker.value is not None
    if live:
        age_ms = broker.age_ms
        if read is not None and not broker.failure:
            seen.add(now_ms, read)
        lags = seen.lags
    elif lags:
        lags = [each for each in lags if lags[-1].at_ms - each.at_ms <= seen.window_ms]
    found = catching_up(lags) if read is not None else None
    return {
        "read": read,
        "commit": total_behind(row["commit_lag"] for row in partitions),
        "known_by": None if read is None else "now" if live else "batch",
        "age_ms": None if read is None else age_ms,
        "shrinks_per_s": round(found.shrinks_per_s, 1) if found else None,
        "all_read_in_ms": 0 if read == 0 else found.ms if found else None,
        "least_ms": found.least_ms if found else None,
        "most_ms": found.most_ms if found else None,
    }


def _commits(answers: Answers) -> dict[str, Any] | None:
    """What is not done, of the document of `commits show`."""
    document = answers.commits.value
    if document is None:
        return None
    rows = document["partitions"]
    held = [
        {"topic": r["topic"], "partition": r["partition"], **r["oldest_pending"]}
        for r in rows
        if r["oldest_pending"]
    ]
    return {
        "seq": document["seq"],
        "committed_at": document["committed_at"],
        "pending": sum(row["pending"] for row in rows),
        "deliveries_max": max((row["deliveries_max"] for row in rows), default=0),
        "oldest_pending": max(held, key=lambda row: row["age_ms"], default=None),
        **{name: document[name] for name in ("dead_letters", "dead_timers")},
        "pending_by_error": document["pending_by_error"],
    }


def _members(answers: Answers) -> dict[str, Any] | None:
    """Who is there, of the document of `members list`."""
    document = answers.members.value
    if document is None:
        return None
    rows = document["members"]
    away = [row for row in rows if row["live"] is False or row["state"] in ("ABSENT", "REMOVED")]
    return {
        "epoch": document["epoch"],
        "members": len(rows),
        "there": len(rows) - len(away),
        "away": [{"name": row["name"], "share": row["share"]} for row in away],
        "next": document["next"],
    }


# What a query's guard says of itself; queries of before say less.
_OF_GUARD: Final = {
    "brokers": "activeBrokers",
    "log_dirs": "activeLogDirs",
    "at_limit": "violated",
    "limit_violated": "limitViolated",
    "fallback_applied": "fallbackApplied",
}


def _throttle(answers: Answers, told: Sequence[ToldBatch]) -> dict[str, Any] | None:
    """The volume guard's factor: by the brokers' disks now, else as the query said it last."""
    document = answers.volumes.value
    if document is not None and document["factor"] is not None:
        rows = document["volumes"]
        return {
            "factor": document["factor"]["value"],
            "why": document["factor"]["why"],
            "known_by": "now",
            "recovered": document["factor"].get("recovered"),
            "brokers": len({row["broker"] for row in rows}),
            "log_dirs": len(rows),
            "at_limit": sum(bool(row["violated"]) for row in rows),
            "limit_violated": None,
            "fallback_applied": None,
        }
    for each in reversed(told):
        for source in each.progress.sources:
            factor = source.number("volumes", "throttleFactor")
            if factor is not None:
                why = str(source.parts["volumes"].get("why", ""))
                found = {key: source.number("volumes", name) for key, name in _OF_GUARD.items()}
                known = {"known_by": "batch", "recovered": None}
                return {"factor": factor, "why": why, **known, **found}
    return None


def _failures(answers: Answers, outdated: QueryProgress | None) -> Iterator[dict[str, Any]]:
    """The sources that did not answer, or not wholly; `age_ms` is that of what is shown of them
    instead. The progress file is `outdated` that ends too early."""
    for name, answer in answers.each():
        if answer.failure or (answer.value is None and answer.waiting_ms):
            age_ms = None if answer.value is None else answer.age_ms
            yield _failure(name, answer.failure or "no answer yet", answer.waiting_ms, age_ms)
    volumes = answers.volumes
    if volumes.value and not volumes.failure and volumes.value["failure"]:
        yield _failure("volumes", volumes.value["failure"], volumes.waiting_ms)
    if outdated is not None:
        text = (
            f"it ends with batch {outdated.batch_id}, and there were others since: the listener is "
            "late, does not run, or writes elsewhere"
        )
        yield _failure("progress", text)


def _clocks(batch: Mapping[str, Any], now_ms: int) -> Iterator[dict[str, Any]]:
    """That a batch was planned in the future, by the clock here: how long it takes is not known."""
    ahead_ms = ms_of(batch["planned_at"]) - now_ms
    if ahead_ms > _AHEAD_MS:
        text = (
            f"batch {batch['last_planned']} was planned {span(ahead_ms)} from now: the clock of "
            "the driver's host is ahead of the one here, and times shown are wrong by as much"
        )
        yield _failure("checkpoint", text)


def _failure(
    source: str, text: str, waiting_ms: int = 0, age_ms: int | None = None
) -> dict[str, Any]:
    return {"source": source, "text": text, "waiting_ms": waiting_ms, "age_ms": age_ms}
