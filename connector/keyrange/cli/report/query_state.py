"""In which state a query is, by the rule and in the words of `keyrange watch`, of what a report has
read.

Rule of this file: no clock. What was read, and what time it is, comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from keyrange.cli.report.advice import advice
from keyrange.cli.times import ms_of
from keyrange.cli.watch.document import Seen, describe
from keyrange.cli.watch.observers import Answer, Answers
from keyrange.cli.watch.reasons import Reason, reasons
from keyrange.cli.watch.view import all_read_text, facts, failure_text, read_lag_text, state_text
from keyrange.report.page_parts import QueryState, Source
from keyrange.storage.model.spark_log import CheckpointProgress
from keyrange.text.formats import span

if TYPE_CHECKING:
    from keyrange.cli.watch.observers import Ends, ToldBatch, Where

_LEVELS: Final = {"stuck": "bad", "unknown": "unknown", "idle": "unknown"}


def query_state(where: Where, answers: Answers, seen: Seen, now_ms: int) -> QueryState:
    """What `watch` says of these answers, and what to do about it. `seen` is what earlier reports
    saw of the lag."""
    document = describe(where.checkpoint, answers, seen, now_ms)
    found = reasons(document, answers)
    failures = [f"{each['source']}: {failure_text(each)}" for each in document["failures"]]
    level = _LEVELS.get(document["state"], "warning" if found or failures else "good")
    text, command = advice(document, found, where)
    return QueryState(
        text=state_text(document),
        level=level,
        causes=[*_causes(document, found), *failures],
        advice=text,
        command=command,
        facts=facts(document),
    )


def _causes(document: Mapping[str, Any], found: Sequence[Reason]) -> list[str]:
    """Why the query is in its state; where nothing holds it up, how far it is."""
    if found:
        return [each.text for each in found]
    lag = document["lag"]
    if lag["read"] == 0:
        left = f", and {lag['commit']:,} offsets are not committed" if lag["commit"] else ""
        return [f"nothing is left to read{left}"]
    if document["state"] == "idle":
        quiet = span(document["batch"]["for_ms"])
        return [f"no batch was planned for {quiet}, and the end of the log is not known"]
    if lag["read"] is None:
        return ["batches come as usual; how far it is behind is not known"]
    return [f"nothing holds it up; it is behind by {read_lag_text(lag)}, {all_read_text(lag)}"]


def answers_of(
    progress: CheckpointProgress,
    read: Mapping[str, Source],
    told: Sequence[ToldBatch],
    ends: Ends | None,
    now_ms: int,
) -> Answers:
    """What a report has read, by the names of its sources, as `watch` has it. `told` is of the
    progress file, `ends` is what Kafka said."""

    def answer(name: str, value: Callable[[Any], Any]) -> Answer[Any] | None:
        source = read[name]
        if source.missing:
            return None
        age_ms = max(now_ms - ms_of(source.since), 0) if source.since else 0
        known = None if source.document is None else value(source.document)
        return Answer(known, age_ms, source.failure)

    return Answers(
        Answer(progress),
        progress=answer("progress", lambda _: list(told)),
        broker=answer("ends", lambda _: ends),
        commits=answer("commits", lambda document: document["show"]),
        members=answer("members", lambda document: document["list"]),
        volumes=answer("volumes", lambda document: document),
    )
