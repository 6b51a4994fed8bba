"""What is wrong with the windows of a run, worked out from its records. Pure.

Each record that is not late is in one window, the windows are those of these records, and none is
written before the watermark has come to its end. Where the batches end says which records are late,
so the commits are asked how far logs were read, and nothing else: what that makes of the watermark
is worked out here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import accumulate, pairwise

from nemesis.facts import Batch, Facts, Place, Read, Timed, Window
from nemesis.windows import AHEAD_MS, DELAY_MS, END_MS, GAP_MS, SIZE_MS

_MS_US = 1000
_BEFORE_ALL_MS = -(1 << 62)


def unclosed(facts: Facts) -> frozenset[Place]:
    """Records whose windows no watermark comes to: the last ones, and those far ahead."""
    if facts.timed is None or facts.timed.kind == "clock":
        return frozenset()
    times = facts.timed.times_ms
    return frozenset(place for place in facts.sent if times.get(place.n, 0) >= END_MS)


def miswritten(facts: Facts) -> Iterator[str]:
    """Rows of windows that are not what their records say."""
    for window in _windows(facts):
        for wrong in _faults(window, facts):
            yield f"{_said(window)}: {wrong}"


def _faults(window: Window, facts: Facts) -> Iterator[str]:
    assert facts.timed is not None
    places, numbers = window.places, [place.n for place in window.places]
    if window.count != len(places) or not places:
        yield f"{window.count} records are counted, and they are {places}"
    if window.total != sum(numbers):
        yield f"the sum is {window.total}, of {numbers}"
    others = [place for place in places if facts.sent.get(place, window.key) != window.key]
    if others:
        yield f"{others} are of other keys"
    times_us = [facts.timed.times_ms.get(n, 0) * _MS_US for n in numbers]
    bounds = window.start_us, window.end_us
    if facts.timed.kind == "session":
        gap_us = GAP_MS * _MS_US
        if times_us != sorted(times_us):
            yield f"records are not in the order of their times, {times_us}"
        times_us.sort()
        if times_us and bounds != (times_us[0], times_us[-1] + gap_us):
            yield f"it is of {times_us[0]} to {times_us[-1]}"
        if any(after - before > gap_us for before, after in pairwise(times_us)):
            yield f"it is more than one session, {times_us}"
    elif facts.timed.kind == "timers":
        size_us = SIZE_MS * _MS_US
        if window.start_us % size_us or window.end_us != window.start_us + size_us:
            yield "there is no such window"
        if any(not window.start_us <= each < window.end_us for each in times_us):
            yield f"it has records of {times_us}"


def rewritten(facts: Facts) -> Iterator[str]:
    """Windows of one key that are written twice, or that are one. Where state was set back, what
    was written may be written again; a record that was a dead letter may find its window closed."""
    if facts.timed is None:
        return
    by_key: dict[tuple[str, int, str], list[Window]] = defaultdict(list)
    for window in _windows(facts):
        for partition in {place.partition for place in window.places}:
            read = _read(facts.timed, facts.timed.batches.get(window.version), partition)
            by_key[window.key, partition, read.topic_id if read else ""].append(window)
    resets = Counter(again.partition for again in facts.again)
    for (_, partition, _), windows in sorted(by_key.items()):
        if facts.timed.has_rows:
            # What a reset has brought back may be set back once more.
            times = Counter(each.start_us for each in windows if not _replayed(each, facts))
            for start_us, count in times.items():
                if count > 1 + resets[partition]:
                    examples = [_said(each) for each in windows if each.start_us == start_us]
                    yield f"{count} times: {'; '.join(examples)}"
        elif not resets[partition]:
            found = sorted(windows, key=lambda each: each.start_us)
            for before, after in pairwise(found):
                replayed = _replayed(before, facts) or _replayed(after, facts)
                if after.start_us <= before.end_us and not replayed:
                    yield f"{_said(before)} and {_said(after)} are one"


def forgotten(facts: Facts) -> Iterator[str]:
    """Records with a row, of which no window is written, or more windows than rows: the function
    that has made the row has put the record into its window, if it is not late. Where state was set
    back it may be there once more, or less often, or not at all if Kafka no longer has it; a topic
    that was made anew takes its windows along."""
    if facts.timed is None or not facts.timed.has_rows:
        return
    rows = Counter(row.place for row in facts.rows if not row.late)
    windows = Counter(place for each in _windows(facts) for place in each.places)
    resets = Counter(again.partition for again in facts.again)
    anew = [each for each in facts.gone if each.partition == -1]
    for place in sorted((rows.keys() | windows.keys()) - unclosed(facts)):
        least = most = rows[place]
        if resets[place.partition]:
            least, most = min(least, 1), most + resets[place.partition]
        took = facts.gone if resets[place.partition] else anew
        if place in facts.unreadable or any(gone.took(place) for gone in took):
            least = 0
        if not least <= windows[place] <= most:
            yield f"{place}: {rows[place]} rows, and it is in {windows[place]} windows"


def early(facts: Facts) -> Iterator[str]:
    """Windows that were written before the watermark can have come to their end."""
    if facts.timed is None or facts.timed.kind == "clock":
        return
    clocks = _Clocks(facts)
    # A record at the very end of a session still belongs to it.
    more_us = 1 if facts.timed.kind == "session" else 0
    for window in _windows(facts):
        for partition in {place.partition for place in window.places}:
            read = _read(facts.timed, facts.timed.batches.get(window.version), partition)
            if read is None:
                yield f"{_said(window)}: no commit is of its batch"
            elif clocks.latest_us(partition, read.until_offset) < window.end_us + more_us:
                yield f"{_said(window)}: until offset {read.until_offset} no record says so"


def misjudged(facts: Facts) -> Iterator[str]:
    """Records that were given up, or worked on, as late ones and are not behind the greatest time
    of all records before them; and rows of others that are, by all that was read before their
    batch."""
    if facts.timed is None or facts.timed.kind == "clock":
        return
    clocks, timed = _Clocks(facts), facts.timed
    late = [(each.place, each.batch) for each in facts.letters if each.cause == "late"]
    late += [(each.place, timed.batches.get(each.version)) for each in facts.rows if each.late]
    for place, batch in late:
        partition, offset, n = place
        time_us = timed.times_ms.get(n, 0) * _MS_US
        read = _read(timed, batch, partition)
        until = offset if read is None else min(offset, read.until_offset)
        if time_us >= clocks.latest_us(partition, until):
            yield f"{place} of {time_us} is taken for a late one"
    if not timed.has_rows:
        return
    newest = {p: r.topic_id for reads in timed.reads.values() for p, r in reads.items()}
    handed = {again.partition for again in facts.again}
    for row in facts.rows:
        partition, offset, n = row.place
        read = _read(timed, timed.batches.get(row.version), partition)
        if row.late or read is None or read.topic_id != newest[partition] or partition in handed:
            continue
        # What was handed out before and comes again is judged by when it came first.
        if offset >= read.until_offset and row.place not in facts.replayed:
            least_us = clocks.least_us(partition, read.all_until_offset)
            if (time_us := timed.times_ms.get(n, 0) * _MS_US) < least_us:
                yield f"{row.place} of {time_us} is late, and was worked on"


class _Clocks:
    """How far the watermark of each partition can have come, in microseconds since 1970."""

    def __init__(self, facts: Facts) -> None:
        assert facts.timed is not None
        self._times = facts.timed.times_ms
        # A record that was never acknowledged may have been in a log that is gone.
        self._unsure = sorted((n, self._time(n)) for n in facts.unsure if n in facts.timed.times_ms)
        self._by_partition: dict[int, list[Place]] = defaultdict(list)
        for place in facts.sent:
            self._by_partition[place.partition].append(place)
        for places in self._by_partition.values():
            places.sort(key=lambda place: place.offset)
        self._sure = {
            place for place in facts.sent if not any(gone.took(place) for gone in facts.gone)
        }
        self._latest: dict[int, list[tuple[int, int]]] = {}
        self._known: dict[tuple[int, int], int] = {}

    def _time(self, n: int) -> int:
        """Of a record that moves the watermark."""
        time_ms = self._times.get(n, _BEFORE_ALL_MS)
        return _BEFORE_ALL_MS if time_ms >= AHEAD_MS else time_ms

    def latest_us(self, partition: int, until_offset: int) -> int:
        """The latest that it can be once the records below an offset were read."""
        places = self._by_partition[partition]
        if partition not in self._latest:
            times = accumulate((self._time(place.n) for place in places), max)
            numbers = accumulate((place.n for place in places), max)
            self._latest[partition] = [*zip(times, numbers, strict=True)]
        count = bisect_left(places, until_offset, key=lambda place: place.offset)
        if not count:
            return _BEFORE_ALL_MS
        time_ms, number = self._latest[partition][count - 1]
        unsure = max((at for n, at in self._unsure if n < number), default=_BEFORE_ALL_MS)
        return (max(time_ms, unsure) - DELAY_MS) * _MS_US

    def least_us(self, partition: int, until_offset: int) -> int:
        """The least that it can be once all records below an offset were read."""
        name = partition, until_offset
        if name not in self._known:
            read = (
                self._time(place.n)
                for place in self._by_partition[partition]
                if place.offset < until_offset and place in self._sure
            )
            self._known[name] = max(read, default=_BEFORE_ALL_MS)
        return (self._known[name] - DELAY_MS) * _MS_US


def _windows(facts: Facts) -> tuple[Window, ...]:
    return () if facts.timed is None else tuple(facts.timed.windows)


def _replayed(window: Window, facts: Facts) -> bool:
    return any(place in facts.replayed for place in window.places)


def _read(timed: Timed, batch: Batch | None, partition: int) -> Read | None:
    return None if batch is None else timed.reads.get(batch, {}).get(partition)


def _said(window: Window) -> str:
    return (
        f"key {window.key}, [{window.start_us}, {window.end_us}) in version {window.version} with "
        f"{[place.n for place in window.places]}"
    )
