"""What holds of the timers and the late records of a simulated job with time, by the rows of its
table: a naive oracle goes through the turns of each key, one after the other."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from keyrange.individual_commits.model.commit import Commit
from keyrange.individual_commits.table.commit_schema import commits_of
from keyrange.keyed_state.state_handles import instant, microseconds
from keyrange.model.checkpoint import CommitMark, read_checkpoint
from keyrange.model.key_ranges import hash_of
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import NEVER
from keyrange.model.watermarks import BEGIN, PartitionTime
from simulation.by_hand import letters
from simulation.histories import Histories, Turns, was_due
from simulation.kinds import COMMITS
from simulation.timed import DELAY_US, Row, is_bad, timer_of
from simulation.topics import Place

if TYPE_CHECKING:
    from simulation.query import Checkpoint
    from simulation.timed import TimedJob
    from simulation.world import World

_FIRST_MS = 1_700_000_000_000
Key = tuple[str, int, int, str]
# A batch by its source and its number.
Of = tuple[str, int]


@dataclass
class Batch:
    """A batch: where its partitions begin and end, and what it was planned from."""

    number: int
    start: Any
    end: Any

    @property
    def mark(self) -> CommitMark:
        mark: CommitMark = self.end.commits
        return mark


class Timed:
    """What is known of a simulation at its end."""

    def __init__(self, world: World, checkpoints: Sequence[Checkpoint], job: TimedJob) -> None:
        self.world, self.checkpoints, self.job = world, checkpoints, job
        # Whether no key range falls behind.
        self.is_even = False

    @cached_property
    def times_us(self) -> dict[Place, int]:
        """The event time of each record that ever was."""
        topics = self.world.topics
        return {
            Place(*at, offset, log.generation): (_FIRST_MS + time_ms) * 1000
            for at, log in [*topics.earlier, *topics.logs.items()]
            for offset, time_ms in log.times.items()
        }

    @cached_property
    def commits(self) -> list[Commit]:
        rows, found = self.world.table(COMMITS).rows(), list[Commit]()
        for source in sorted(set(rows.column("source_id").to_pylist())):
            found += commits_of(rows.filter(pc.equal(rows.column("source_id"), source)), source)
        return found

    def batches(self, checkpoint: Checkpoint) -> Iterator[Batch]:
        ends = [read_checkpoint(each) for each in checkpoint.ends]
        for number, end in enumerate(ends):
            yield Batch(number, ends[number - 1] if number else end, end)

    @cached_property
    def by_application(self) -> dict[tuple[str, int], Batch]:
        found = {}
        for checkpoint in self.checkpoints:
            query = json.loads((checkpoint.path / "metadata").read_text())["id"]
            for number, batch in enumerate(self.batches(checkpoint)):
                found[query, number] = batch
        return found

    def time_before(self, batch: Batch, at: TopicPartition) -> PartitionTime:
        """What was known of a partition's time when a batch was planned."""
        mark = batch.mark
        source_id, seq = mark.resumes if mark.resumes else (mark.source_id, mark.seq)
        found: dict[TopicPartition, PartitionTime] = {}
        for each in self.commits:
            if each.source_id == source_id and each.seq <= seq:
                found = dict(each.times) if each.whole else {**found, **each.times}
        return found.get(at) or PartitionTime()

    def clock_us(self, batch: Batch, at: TopicPartition) -> int:
        times = {each: self.time_before(batch, each) for each in self.sharing(at)}
        log_ends = batch.end.log_ends
        unread = {each for each in times if log_ends.get(each, 0) > _begin(batch, each)}
        return self.clock_by(times, batch, unread)

    def clock_at(self, at: TopicPartition, offset: int) -> int:
        """The clock of a partition in the batch that had an offset first."""
        return next(
            self.clock_us(batch, at)
            for batch in self.batches(self.checkpoints[-1])
            if at in batch.end.positions and _begin(batch, at) <= offset < batch.end.positions[at]
        )

    def clock_of_key(self, batch: Batch, key: Key) -> int:
        """What a key goes by: one whose range lags behind by the clock of the last batch that began
        where the range stands, or before."""
        at, clock = TopicPartition(*key[:2]), self.clock_us(batch, TopicPartition(*key[:2]))
        mark, states = batch.mark, dict[TopicPartition, Any]()
        source_id, seq = mark.resumes if mark.resumes else (mark.source_id, mark.seq)
        for each in self.commits:
            if each.source_id == source_id and each.seq <= seq:
                states = {**states, **each.states}
        if not self.job.time.is_event_time:
            return clock
        lags = [
            (each, scanned)
            for each in self.sharing(at)
            if each in states
            and (scanned := states[each].piece_of(hash_of(key[3].encode())).scanned)
            < states[each].position
        ]
        for each, scanned in lags:
            clocks = [
                self.clock_us(other, each)
                for other in self.batches(self.checkpoints[-1])
                if other.number < batch.number
                and each in other.end.known
                and _begin(other, each) <= scanned
            ]
            clock = min(clock, clocks[-1]) if clocks else BEGIN
        return clock

    def home(self, topic: str) -> str:
        """The topic under which the state of a topic's keys stands."""
        return "t" if self.job.shares else topic

    def sharing(self, at: TopicPartition) -> list[TopicPartition]:
        """The partitions that share the state of one."""
        return [TopicPartition(each, at.partition) for each in "ta"] if self.job.shares else [at]

    def clock_by(
        self,
        times: Mapping[TopicPartition, PartitionTime],
        batch: Batch,
        unread: Collection[TopicPartition] = (),
    ) -> int:
        """`unread`: partitions with new records. They are not idle, whenever the last one came."""
        now_ms, idle_us = batch.mark.time_ms, self.job.time.idle_after_us
        assert now_ms is not None
        if not self.job.time.is_event_time:
            return now_ms * 1000
        known = {at: each.watermark for at, each in times.items() if each.watermark is not None}
        if idle_us is None:
            return min((each.at_us for each in known.values()), default=BEGIN)
        idle = {at: (now_ms - each.since_ms) * 1000 - idle_us for at, each in known.items()}
        busy = [each.at_us for at, each in known.items() if idle[at] <= 0 or at in unread]
        if busy:
            return min(busy)
        begun = [(each.at_us, idle[at]) for at, each in known.items() if each.at_us != BEGIN]
        return max((at_us + more for at_us, more in begun), default=BEGIN)

    @cached_property
    def dead(self) -> dict[Key, list[tuple[Place, int]]]:
        """Of each key the records that were given up, and in which batch."""
        found: dict[Key, list[tuple[Place, int]]] = {}
        topics = self.world.topics
        keys = dict(topics.produced())
        for place, (_, number) in letters(self.world):
            key = keys.get(place)
            if key is not None:
                topic = self.home(place.topic)
                at = (topic, place.partition, place.generation, key.decode())
                found.setdefault(at, []).append((place, number))
        return found

    @cached_property
    def timer_letters(self) -> dict[tuple[Place, int], tuple[list[Of], list[tuple[Of, str]]]]:
        """Of each timer, by its record and its time, the batches that gave it up, and which of them
        a replay was for, with the run of that."""
        table = self.world.table(f"{COMMITS}_dead_letters")
        rows = table.rows().to_pylist() if table.versions else []
        by_timer = {
            (self.home(at.topic), at.partition, at.generation, _timer_us(self, at)): at
            for at in self.times_us
        }
        found: dict[Any, Any] = defaultdict(lambda: ([], []))
        for row in rows:
            if row["timer_at"] is not None:
                at_us = microseconds(row["timer_at"])
                generation = self.world.topics.generation_of(row["topic_id"])
                place = by_timer[row["topic"], row["partition"], generation, at_us]
                of, (letters, replays) = (row["source_id"], row["batch_id"]), found[place, at_us]
                if row["kind"] == "timer":
                    letters.append(of)
                else:
                    replays.append((of, row["replay_run"]))
        return found

    @cached_property
    def turns(self) -> dict[Key, list[tuple[Batch, Row]]]:
        """The rows of each key, in its turns."""
        found: dict[Key, list[tuple[Batch, Row]]] = {}
        for application, number, row in self.world.sink.read():
            batch = self.by_application[application.split(":")[1], number]
            key = (self.home(row.topic), row.partition, row.generation, row.key)
            found.setdefault(key, []).append((batch, row))
        for each in found.values():
            each.sort(key=lambda one: one[1].turn)
        return found


def late(timed: Timed) -> set[Place]:
    """Records that may be dropped: they were late in the batch that had them first."""
    if timed.job.time.late != "drop" or not timed.job.time.is_event_time:
        return set()
    clocks: dict[TopicPartition, list[tuple[int, int, int]]] = {}
    for checkpoint in timed.checkpoints:
        for batch in timed.batches(checkpoint):
            for at, until in batch.end.positions.items():
                if (begin := _begin(batch, at)) < until:
                    clocks.setdefault(at, []).append((begin, until, timed.clock_us(batch, at)))
    return {
        place
        for place, time_us in timed.times_us.items()
        if any(
            begin <= place.offset < until and time_us < clock
            for begin, until, clock in clocks.get(TopicPartition(*place[:2]), ())
        )
    }


def check(timed: Timed, again: Collection[Place], excused: Collection[Place], strict: bool) -> None:
    """`again`: records that somebody asked for again; `excused`: those that need not count.
    `strict`: nothing but the definition says when a record is late and a timer early."""
    histories = Histories(timed)
    histories.check_records(excused)
    for key, rows in histories.every():
        turns = [row.turn for _, row in rows]
        assert turns == [*range(1, len(rows) + 1)], f"{key}: turns {[row for _, row in rows]}"
        _check_key(timed, key, rows, again, strict)
        if timed.job.shares and strict and timed.is_even:
            _check_topics_in_turn(timed, key, rows)
    for (place, timer_us), (given_up, _) in timed.timer_letters.items():
        assert timer_us == _timer_us(timed, place), f"a timer of {place} was given up that is none"
        assert not _is_good((place, None)), f"{place}: its timer never fails"
        assert len(given_up) == 1 or not strict, f"{place}: its timer has letters {given_up}"
    _check_end(timed, histories)


def _timer_us(timed: Timed, place: Place) -> int:
    moment = instant(timed.times_us[place])
    return microseconds(timer_of(place.topic, place.offset, moment))


def _check_topics_in_turn(timed: Timed, key: Key, rows: Turns) -> None:
    """A key's records have had their turns in the order of the batches that were to hand them out
    first, those of one batch topic by topic, the topic with the state first."""
    ends = [batch.end.positions for batch in timed.batches(timed.checkpoints[-1])]
    turns = []
    for _, row in rows:
        if row.timer_us is None:
            at = TopicPartition(row.topic, row.partition)
            first = next(n for n, end in enumerate(ends) if end.get(at, 0) > row.offset)
            turns.append((first, row.topic != "t", row.offset, row))
    in_order = sorted(turns, key=lambda each: each[:3])
    assert turns == in_order, f"{key}: {turns} are not in turn"


def _check_key(
    timed: Timed,
    key: Key,
    rows: Turns,
    again: Collection[Place],
    strict: bool,
) -> None:
    home = TopicPartition(*key[:2])
    # By its time: the record of each timer, and the batch in which it was set.
    timers: dict[int, tuple[Place, Batch]] = {}
    latest_us = BEGIN
    # Batches in which some record of the key came again: its timers may have waited.
    came_again = {batch.number for batch, row in rows if _came_again(batch, row)}
    for dead, number in timed.dead.get(key, ()):
        came_again.update(
            batch.number
            for batch, row in rows
            if (dead.topic != row.topic or dead.offset < row.offset)
            and dead.offset < _begin(batch, TopicPartition(*dead[:2]))
            and batch.number <= number
        )
    for batch, row in rows:
        clock = timed.clock_of_key(batch, key) if strict else timed.clock_us(batch, home)
        if row.timer_us is not None:
            known = timers.pop(row.timer_us, None)
            assert known is not None, f"{row} has fired and was not set, or twice"
            assert known[0] == row.place, f"{row} is the timer of {known[0]}"
            # What failed, or was due with that, goes by the clock of then; it may be back since.
            failed = [each for each in timers if each < row.timer_us and not _is_good(timers[each])]
            may_be = (failed and not strict) or not timed.job.time.is_event_time
            may_be = may_be and was_due(timed, home, row.timer_us, known[1], batch)
            assert row.timer_us <= clock or may_be, f"{row} is early: the clock was {clock}"
            earlier = [each for each in timers if each < row.timer_us and _is_good(timers[each])]
            assert not earlier, f"{row} has fired before that of {timers[min(earlier)][0]}"
            latest_us = max(latest_us, row.timer_us)
            continue
        if strict and timed.job.time.is_event_time:
            first = timed.clock_at(TopicPartition(row.topic, row.partition), row.offset)
            assert latest_us <= first, (
                f"{row} was read when the clock was {first}, and timer {latest_us} fired before"
            )
        time_us = timed.times_us[row.place]
        if not _came_again(batch, row) and row.place not in again and strict:
            is_late = timed.job.time.is_event_time and time_us < clock
            assert timed.job.time.late == "deliver" or not is_late, f"{row} was late"
            assert timed.job.time.late == "drop" or is_late == bool(row.late), f"{row} is late?"
            due = [
                each
                for each, (place, of) in timers.items()
                if each <= clock and of is not batch and _is_good((place, of))
            ]
            assert not due or batch.number in came_again, (
                f"{row} came before the timer of {timers[min(due)][0]}, clock {clock}"
            )
        timers[_timer_us(timed, row.place)] = (row.place, batch)


def _is_good(timer: tuple[Place, Batch | None]) -> bool:
    # One that fails may be given up.
    return not is_bad(timer[0].offset) and timer[0].offset % 7 != 1


def _came_again(batch: Batch, row: Row) -> bool:
    if row.timer_us is not None:
        return False
    return row.offset < _begin(batch, TopicPartition(row.topic, row.partition))


def _begin(batch: Batch, at: TopicPartition) -> int:
    begin: int = batch.end.initial.get(at, batch.start.positions.get(at, 0))
    return begin


def _check_end(timed: Timed, histories: Histories) -> None:
    """Nothing is due any more, and what the last commit says of each key's next timer is true."""
    last = [*timed.batches(timed.checkpoints[-1])][-1]
    turns = histories.last
    asked = Counter(row.place for rows in turns.values() for _, row in rows if row.timer_us)
    seq = max(each.seq for each in timed.commits if each.source_id == last.mark.source_id)
    behind = last
    for key, rows in turns.items():
        at = TopicPartition(*key[:2])
        if timed.world.topics.generations.get(at.topic, 0) != key[2] or at not in last.end.known:
            continue
        known: dict[TopicPartition, PartitionTime] = {}
        for each in timed.commits:
            if each.source_id == last.mark.source_id and each.seq <= seq:
                known = dict(each.times) if each.whole else {**known, **each.times}
        time = known.get(at) or PartitionTime()
        times = {each: known.get(each) or PartitionTime() for each in timed.sharing(at)}
        clock = timed.clock_by(times, behind)
        set_at = {
            _timer_us(timed, row.place): row.place
            for _, row in rows
            if row.timer_us is None and not asked[row.place]
        }
        for timer_us, place in set_at.items():
            own = [each for each in time.timers if each.span.contains(hash_of(key[3].encode()))]
            if not _is_good((place, behind)):
                waits = [each for each in own if min(each.timer_us, each.retry_ms * 1000) < NEVER]
                is_given_up = histories.is_given_up(place, timer_us)
                assert is_given_up or waits, f"the timer of {place} is neither given up nor to come"
                continue
            assert timer_us > clock, f"the timer of {place} is lost: {timer_us}, clock {clock}"
            told = [each for each in own if each.timer_us <= timer_us]
            assert told, f"the commit says nothing of the timer of {place}: {time}"
        if time.watermark is not None and timed.job.time.idle_after_us is None:
            _check_watermark(timed, at, key[2], time.watermark.at_us)


def _check_watermark(timed: Timed, at: TopicPartition, generation: int, at_us: int) -> None:
    seen = [
        time_us
        for place, time_us in timed.times_us.items()
        if (*place[:2], place.generation) == (*at, generation)
    ]
    latest_us = max(seen) - DELAY_US if seen else BEGIN
    assert at_us <= latest_us, f"{at}: the watermark {at_us} is beyond all records"
