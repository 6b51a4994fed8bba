"""Which drivers have begun in a group of a commit table, and in which order.

A driver that begins writes a fence into its own source, behind one into every source that it stops.
All of them hold its number, one more than any in the group before, and name its own source. Two
that began at once may have one number: they are put in order by what stands in the sources, since
whoever takes a group over stops who had it; the clock decides between two only that never met.
Consumers' fences have no number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fence:
    """Commit `seq` of a source, by which the driver of run `run_id` began there, or stopped it.

    `group_seq` is the driver's number in its group and `driver` its own source; 0 and "" of a
    consumer.
    """

    source_id: str
    seq: int
    run_id: str
    query_id: str = ""
    group_seq: int = 0
    driver: str = ""
    at_ms: int = 0


def next_group_seq(fences: Iterable[Fence]) -> int:
    """The number of the next driver that begins."""
    return 1 + max((fence.group_seq for fence in fences), default=0)


def begun(fences: Iterable[Fence]) -> list[Fence]:
    """The fences by which drivers began in their own sources, in the order in which they did."""
    by_run: dict[str, list[Fence]] = {}
    for fence in fences:
        by_run.setdefault(fence.run_id, []).append(fence)
    firsts = _first_queries(by_run)
    found: list[Fence] = []
    for run_id in _in_order(by_run):
        own = _own_source(by_run[run_id], firsts)
        found += [fence for fence in by_run[run_id] if fence.source_id == own][:1]
    return found


def living(fences: Iterable[Fence]) -> set[str]:
    """The sources that nobody has stopped since a driver began in them."""
    last: dict[str, Fence] = {}
    for fence in sorted(fences, key=lambda fence: fence.seq):
        last[fence.source_id] = fence
    own = {(fence.source_id, fence.run_id) for fence in begun(fences)}
    return {source for source, fence in last.items() if (source, fence.run_id) in own}


def last_source(
    fences: Iterable[Fence], has_states: Callable[[str, int, int | None], bool] | None = None
) -> str | None:
    """The source in which a driver began last; with `has_states`, which tells of commits [from,
    until) of a source, the last one whose driver then said what is done."""
    until: dict[str, int] = {}
    for fence in reversed(begun(fences)):
        source = fence.source_id
        if has_states is None or has_states(source, fence.seq, until.get(source)):
            return source
        until[source] = fence.seq
    return None


def _in_order(by_run: dict[str, list[Fence]]) -> list[str]:
    """Runs by their numbers, none before one that stands in front of it in a source."""
    sources: dict[str, deque[str]] = {}
    for fence in sorted((each for own in by_run.values() for each in own), key=lambda f: f.seq):
        queue = sources.setdefault(fence.source_id, deque())
        if fence.run_id not in queue:
            queue.append(fence.run_id)
    keys = {
        run_id: (max(f.group_seq for f in own), min(f.at_ms for f in own), own[0].source_id)
        for run_id, own in by_run.items()
    }
    found: list[str] = []
    while heads := {queue[0] for queue in sources.values() if queue}:
        ready = [run for run in heads if _is_next(run, by_run[run], sources)]
        # Rows that contradict each other leave none.
        run_id = min(ready or heads, key=lambda run: (keys[run], run))
        found.append(run_id)
        for source in {fence.source_id for fence in by_run[run_id]}:
            sources[source].remove(run_id)
    return found


def _is_next(run_id: str, own: Sequence[Fence], sources: dict[str, deque[str]]) -> bool:
    return all(sources[fence.source_id][0] == run_id for fence in own)


def _first_queries(by_run: dict[str, list[Fence]]) -> dict[str, str]:
    """The query that each source began with."""
    fences = [fence for own in by_run.values() for fence in own]
    ordered = sorted(fences, key=lambda fence: fence.seq, reverse=True)
    return {fence.source_id: fence.query_id for fence in ordered}


def _own_source(own: Sequence[Fence], firsts: dict[str, str]) -> str:
    """The source of a run's driver, among those that it has written a fence into."""
    named = next((fence.driver for fence in own if fence.driver), "")
    if named:
        return named
    sources = sorted({fence.source_id for fence in own})
    of_query = [source for source in sources if firsts[source] == own[0].query_id]
    return (of_query or sources)[-1]
