"""The offset that Spark stores: positions per partition, and what keyrange must know besides.

The JSON is the JVM connector's, `{"topic": {"0": 23}}` with the next offset to read, plus one key
that no topic can have. Under `@keyrange` stand the version of this format, the topics' ids (a
recreated topic has another), the leader epochs, the name of the mirrored group where it was made
up, the key ranges where the query reads only some, and the initial positions: Spark does not store
what `initialOffset` answered, so the first end that follows carries the start of every partition
that began in it, and a replay of that batch reads the same range. `commits` names what a query
that commits individually has planned the batch from.

`absent` keeps where partitions stood that the cluster does not tell of any more, in the order in
which they went: one that is back, of a topic with the same id, is gone on with.

The text must be the same for the same state, because Spark compares offsets as text: keys are
sorted, and nothing in it changes unless a position moves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from keyrange.errors import KeyrangeError, error
from keyrange.model.offsets import (
    EARLIEST,
    OFFSET_MAX,
    PARTITION_MAX,
    TopicPartition,
    by_topic,
    nested,
    topic_name_fault,
)
from keyrange.model.query_ranges import Ownership, read_ownership, write_ownership

RESERVED: Final = "@keyrange"
VERSION: Final = 1
# As the time until which pending records are due: none is.
NEVER_DUE: Final = -1
# A clock that is set back by more was wrong before.
_SET_BACK_MS_MAX: Final = 3_600_000

# A source has a directory of this name.
_SOURCE_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}\Z")


@dataclass(frozen=True, slots=True)
class CommitMark:
    """What a batch of a query that commits individually was planned from, and how: whoever plans
    it again plans the same, whatever the options say by then.

    `source_id` is made up when the query begins. `seq` is the last commit that the plan knows.
    Pending records whose time came until `due_ms` are handed out again, and timers that failed fire
    again; NEVER_DUE for none.
    `ranges` says into how many even key ranges each partition is cut; one that is not named is not
    cut, or as the options say. `cuts` are hashes at which it is cut besides, ascending: where the
    portions of a batch begin that is read by slots. `pending_max` is the bound of a key range and
    `keeps_order` whether later records of a key wait, `deliveries_max` how often one is worked on;
    None stands for what the options say. `resumes` names the source and its commit that a query
    without commits of its own goes on from. `log_ends` says where the logs end that the batch does
    not reach: a partition with records that it does not read is not idle. `time_ms` is the time of
    the batch, in ms since 1970, where a job keeps state for keys, else None, and `clock_ms` what
    the clock said then: a timer that fails waits from there on. `state_topic` as of `StateScope`.
    """

    source_id: str
    seq: int
    due_ms: int = NEVER_DUE
    ranges: Mapping[TopicPartition, int] = field(default_factory=dict)
    pending_max: int | None = None
    keeps_order: bool | None = None
    deliveries_max: int | None = None
    resumes: tuple[str, int] | None = None
    log_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    cuts: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    time_ms: int | None = None
    clock_ms: int | None = None
    state_topic: str = ""

    def to_json(self) -> dict[str, Any]:
        document = {
            "clockMs": self.clock_ms,
            "cuts": nested({at: list(each) for at, each in self.cuts.items()}) or None,
            "deliveriesMax": self.deliveries_max,
            "dueMs": None if self.due_ms == NEVER_DUE else self.due_ms,
            "pendingMax": self.pending_max,
            "keepsOrder": self.keeps_order,
            "logEnds": nested(self.log_ends) or None,
            "ranges": nested(self.ranges) or None,
            "resumes": self.resumes and {"seq": self.resumes[1], "sourceId": self.resumes[0]},
            "seq": self.seq,
            "sourceId": self.source_id,
            "stateTopic": self.state_topic or None,
            "timeMs": self.time_ms,
        }
        return {name: each for name, each in document.items() if each is not None}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Positions and their companions.

    `initial` holds the start of the partitions that no earlier offset has a position for.
    `absent` are the positions of partitions that went, the longest absent first; `topic_ids` and
    `leader_epochs` tell of them too.
    `fresh` marks the answer of `initialOffset`: its positions are durable nowhere yet. `group_id`
    is the group that positions are mirrored to, where its name was made up for this query.
    `ownership` is empty where whole partitions are read.
    `commits` is there where records are committed individually.
    `source_id` is that of a source whose tasks write to a table themselves, by which that knows
    what it has; where records are committed individually `commits` has it.
    `foreign`: read from an offset without keyrange's key, which the JVM connector wrote.
    """

    positions: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    initial: Mapping[TopicPartition, int] = field(default_factory=dict)
    fresh: bool = False
    group_id: str = ""
    ownership: Ownership = field(default_factory=dict)
    foreign: bool = False
    commits: CommitMark | None = None
    absent: Mapping[TopicPartition, int] = field(default_factory=dict)
    source_id: str = ""

    @property
    def known(self) -> dict[TopicPartition, int]:
        """Where partitions stand, and where those stood that are absent."""
        return {**self.absent, **self.positions}

    @property
    def log_ends(self) -> dict[TopicPartition, int]:
        """Where the logs ended when the batch was planned; nothing where records are not committed
        individually, because then the checkpoint does not know."""
        if self.commits is None:
            return {}
        beyond = self.commits.log_ends
        return {partition: beyond.get(partition, at) for partition, at in self.positions.items()}

    def time_after(self, now_ms: int, committed_ms: int) -> int:
        """The time of the batch behind it, in ms since 1970. It does not go back where a clock was
        set back a little, or another driver's is behind: windows and timers of the time before have
        been. Of a query without commits of its own that was until `committed_ms`."""
        before_ms = committed_ms if self.commits is None else self.commits.time_ms or now_ms
        return before_ms if 0 < before_ms - now_ms <= _SET_BACK_MS_MAX else now_ms

    def start_of(self, partition: TopicPartition, start: Checkpoint) -> int | None:
        """Where a batch from `start` to this checkpoint begins to read a partition."""
        if partition in self.initial:
            return self.initial[partition]
        return start.positions.get(partition)

    def to_json(self) -> dict[str, Any]:
        """The form that Spark writes, with its keys in order."""
        extra = {
            "version": VERSION,
            "absent": _write_absent(self.absent),
            "commits": None if self.commits is None else self.commits.to_json(),
            "fresh": self.fresh,
            "groupId": self.group_id,
            "initial": nested(self.initial),
            "keyRanges": write_ownership(self.ownership),
            "leaderEpochs": nested(self.leader_epochs),
            "sourceId": self.source_id,
            "topicIds": dict(sorted(self.topic_ids.items())),
        }
        told = {name: each for name, each in extra.items() if each}
        return {RESERVED: told, **nested(self.positions)}


def read_checkpoint(document: Any) -> Checkpoint:
    """A checkpoint from Spark's JSON: keyrange's own, or one that the JVM connector wrote.

    Raises InvalidError: INVALID_OFFSETS where the form is wrong, UNSUPPORTED_CHECKPOINT where a
    newer keyrange wrote it.
    """
    if not isinstance(document, dict):
        raise _invalid("it is not a JSON object of topics, as those of Kafka sources are")
    extra = document.get(RESERVED, {"version": VERSION})
    version = extra.get("version") if isinstance(extra, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _invalid(f"'{RESERVED}' holds no version")
    if version > VERSION:
        raise error(
            "UNSUPPORTED_CHECKPOINT",
            f"the offset has format version {version}, known is up to {VERSION}",
        )
    topic_ids = extra.get("topicIds", {})
    if not isinstance(topic_ids, dict) or not all(isinstance(i, str) for i in topic_ids.values()):
        raise _invalid("'topicIds' is not an object of strings")
    group_id = extra.get("groupId", "")
    if not isinstance(group_id, str):
        raise _invalid("'groupId' is not a string")
    source_id = extra.get("sourceId", "")
    if not isinstance(source_id, str) or (source_id and not _SOURCE_ID.match(source_id)):
        raise _invalid("'sourceId' is no id")
    try:
        ownership = read_ownership(extra.get("keyRanges", {}))
    except ValueError as failure:
        raise _invalid(f"'keyRanges': {failure}") from None
    return Checkpoint(
        positions=read_positions({k: v for k, v in document.items() if k != RESERVED}, least=0),
        topic_ids=topic_ids,
        leader_epochs=read_positions(extra.get("leaderEpochs", {}), least=-1),
        initial=read_positions(extra.get("initial", {}), least=0),
        fresh=extra.get("fresh") is True,
        group_id=group_id,
        ownership=ownership,
        foreign=RESERVED not in document,
        commits=_read_mark(extra.get("commits")),
        absent=_read_absent(extra.get("absent", [])),
        source_id=source_id,
    )


def _write_absent(absent: Mapping[TopicPartition, int]) -> list[Any]:
    topics = by_topic(absent).items()
    return [nested({TopicPartition(topic, n): at for n, at in each}) for topic, each in topics]


def _read_absent(document: Any) -> dict[TopicPartition, int]:
    """A list, because its order is that in which topics went, and JSON has none in an object."""
    if not isinstance(document, list):
        raise _invalid("'absent' is not a list")
    found: dict[TopicPartition, int] = {}
    for each in document:
        found |= read_positions(each, least=0)
    return found


def _read_mark(document: Any) -> CommitMark | None:
    if document is None:
        return None
    source_id, seq = _read_commit(document, "'commits'")
    if not _SOURCE_ID.match(source_id):
        raise _invalid("'commits' names a source by what is no id")
    due_ms = document.get("dueMs", NEVER_DUE)
    pending_max, deliveries_max = document.get("pendingMax"), document.get("deliveriesMax")
    times_ms = document.get("timeMs"), document.get("clockMs")
    bounds = [each for each in (pending_max, deliveries_max, *times_ms) if each is not None]
    if not _is_count(due_ms, NEVER_DUE) or not all(_is_count(each, 1) for each in bounds):
        raise _invalid("'commits' holds no whole numbers")
    keeps_order = document.get("keepsOrder")
    if not (keeps_order is None or isinstance(keeps_order, bool)):
        raise _invalid("'keepsOrder' of 'commits' is neither true nor false")
    resumes, cuts = document.get("resumes"), document.get("cuts", {})
    return CommitMark(
        source_id,
        seq,
        due_ms,
        read_positions(document.get("ranges", {}), least=1),
        pending_max,
        keeps_order,
        deliveries_max,
        _read_commit(resumes, "'resumes' of 'commits'") if resumes is not None else None,
        read_positions(document.get("logEnds", {}), least=0),
        {partition: _cuts(at, partition) for partition, at in _by_partition(cuts)},
        *times_ms,
        str(document.get("stateTopic", "")),
    )


def _cuts(document: Any, partition: TopicPartition) -> tuple[int, ...]:
    """Hashes inside the space, ascending."""
    hashes = document if isinstance(document, list) else [None]
    whole = all(_is_count(each, 1) for each in hashes)
    if not whole or any(a >= b for a, b in pairwise(hashes)):
        raise _invalid(f"'cuts' of {partition} are no hashes in ascending order")
    return tuple(hashes)


def _read_commit(document: Any, what: str) -> tuple[str, int]:
    """A source, and one of its commits."""
    if not isinstance(document, dict):
        raise _invalid(f"{what} is not an object")
    source_id, seq = document.get("sourceId"), document.get("seq")
    if not isinstance(source_id, str) or not source_id:
        raise _invalid(f"{what} names no source")
    if not isinstance(seq, int) or not _is_count(seq, 0):
        raise _invalid(f"{what} holds no whole numbers")
    return source_id, seq


def _is_count(number: Any, least: int) -> bool:
    whole = isinstance(number, int) and not isinstance(number, bool)
    return whole and least <= number <= OFFSET_MAX


def read_positions(document: Any, least: int = EARLIEST) -> dict[TopicPartition, int]:
    """`{"topic": {"0": 23}}` as positions; numbers below `least` are refused."""
    positions: dict[TopicPartition, int] = {}
    for partition, offset in _by_partition(document):
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise _invalid(f"the offset of {partition} is not a whole number")
        if not least <= offset <= OFFSET_MAX:
            raise _invalid(f"the offset of {partition} is {offset}")
        positions[partition] = offset
    return positions


def read_partitions(document: Any) -> list[TopicPartition]:
    """`{"topic": [0, 1]}` as partitions, in order, each once."""
    found: set[TopicPartition] = set()
    for topic, numbers in _by_topic(document):
        if not isinstance(numbers, list):
            raise _invalid(f"topic {topic} has no list of partitions")
        for number in numbers:
            if not _is_count(number, 0) or number > PARTITION_MAX:
                raise _invalid(f"{number!r} is not a partition of topic {topic}")
            found.add(TopicPartition(topic, number))
    return sorted(found)


def _by_partition(document: Any) -> Iterable[tuple[TopicPartition, Any]]:
    for topic, partitions in _by_topic(document):
        if not isinstance(partitions, dict):
            raise _invalid(f"topic {topic} has no object of partitions")
        for number, value in partitions.items():
            if not (isinstance(number, str) and number.isascii() and number.isdigit()):
                raise _invalid(f"{number!r} is not a partition of topic {topic}")
            if len(number) > 10 or int(number) > PARTITION_MAX or number != str(int(number)):
                raise _invalid(f"{number} is not a partition of topic {topic}")
            yield TopicPartition(topic, int(number)), value


def _by_topic(document: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(document, dict):
        raise _invalid("it is not a JSON object")
    for topic, value in document.items():
        fault = topic_name_fault(topic) if isinstance(topic, str) else f"{topic!r} is no name"
        if fault:
            raise _invalid(fault)
        yield topic, value


def _invalid(why: str) -> KeyrangeError:
    return error("INVALID_OFFSETS", f"the offsets cannot be read: {why}")
