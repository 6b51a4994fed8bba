"""What members of a group of plain consumers tell its leader, and what they are told: bounded JSON.

Ranges travel as `[lo, hi]` with both ends included. Nothing here is trusted: who reads it may be
another version, and every member of a Kafka group can write it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from keyrange.errors import error
from keyrange.model.key_ranges import KeyRange, read_ranges, write_ranges
from keyrange.model.offsets import OFFSET_MAX, TopicPartition, by_partition, nested

VERSION: Final = 1
# A group's members and assignments stand in one record of Kafka's, of 1 MB by default.
INTEREST_BYTES_MAX: Final = 4 * 1024
SHARE_BYTES_MAX: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Interest:
    """What a member says of itself when it joins: its slot, and the topics that it reads.
    `pattern`: these are the topics that it has found to match. `times` is how often it has said the
    same: Kafka calls for an assignment only where a member says something else."""

    slot: str
    topics: tuple[str, ...]
    host: str = ""
    pid: int = 0
    source: str = ""
    pattern: str = ""
    times: int = 0

    @property
    def wish(self) -> int:
        """A number for what it wants to read."""
        return zlib.crc32(json.dumps([sorted(self.topics), self.pattern]).encode())


@dataclass(frozen=True, slots=True)
class Share:
    """What a member is told: its ranges in an epoch, the slots of all members, and those of them
    that get something of what it had before. `leader` is the slot of who says so, and `wish` that
    of the interest that it answers; None where a leader of before does not say it."""

    epoch: int
    ranges: Mapping[TopicPartition, list[KeyRange]]
    members: frozenset[str]
    receivers: frozenset[str]
    leader: str = ""
    wish: int | None = None


def write_interest(interest: Interest) -> bytes:
    """Raises INVALID_ASSIGNMENT where it is longer than a member may say."""
    document = {
        "v": VERSION,
        "slot": interest.slot,
        "topics": sorted(interest.topics),
        "host": interest.host,
        "executor": "",
        "cores": 1,
        "source": interest.source,
        "pid": interest.pid,
        **({"pattern": interest.pattern} if interest.pattern else {}),
        **({"times": interest.times} if interest.times else {}),
    }
    return _written(document, INTEREST_BYTES_MAX, "what a member says of itself")


def read_interest(data: bytes) -> Interest | None:
    """None for what is not of a plain consumer of a known version."""
    try:
        document = _read(data, INTEREST_BYTES_MAX)
        slot, topics = document["slot"], document["topics"]
        host, pid, source = document["host"], document["pid"], document["source"]
        pattern, times = document.get("pattern", ""), document.get("times", 0)
        texts = [slot, host, source, pattern, *topics]
        if not slot or not all(isinstance(each, str) for each in texts):
            return None
        if type(pid) is not int or type(times) is not int:
            return None
        return Interest(slot, tuple(topics), host, pid, source, pattern, times)
    except (ValueError, KeyError, TypeError):
        return None


def write_share(share: Share) -> bytes:
    """Raises INVALID_ASSIGNMENT where it is longer than Kafka would keep."""
    ranges = {partition: write_ranges(spans) for partition, spans in share.ranges.items()}
    document = {
        "v": VERSION,
        "epoch": share.epoch,
        "ranges": nested(ranges),
        "members": sorted(share.members),
        "receivers": sorted(share.receivers),
        "leader": share.leader,
        **({} if share.wish is None else {"wish": share.wish}),
    }
    return _written(document, SHARE_BYTES_MAX, "a member's share")


def read_share(data: bytes) -> Share:
    """Raises INVALID_ASSIGNMENT for what is no share of a known version."""
    try:
        document = _read(data, SHARE_BYTES_MAX)
        epoch = document["epoch"]
        if type(epoch) is not int or not 1 <= epoch <= OFFSET_MAX:
            raise ValueError("its epoch is none")
        ranges = {at: read_ranges(spans) for at, spans in by_partition(document["ranges"])}
        members, receivers = (_names(document[name]) for name in ("members", "receivers"))
        leader, wish = document.get("leader", ""), document.get("wish")
        if not isinstance(leader, str):
            raise ValueError("its leader has no name")
        if wish is not None and type(wish) is not int:
            raise ValueError("what it answers is no number")
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise error("INVALID_ASSIGNMENT", f"what the group's leader says: {fault}") from None
    return Share(epoch, ranges, members, receivers, leader, wish)


def _names(document: Any) -> frozenset[str]:
    if not isinstance(document, list) or not all(isinstance(each, str) for each in document):
        raise ValueError("slots are a list of names")
    return frozenset(document)


def _written(document: Mapping[str, Any], bytes_max: int, what: str) -> bytes:
    data = json.dumps(document, separators=(",", ":")).encode()
    if len(data) > bytes_max:
        raise error("INVALID_ASSIGNMENT", f"{what} takes {len(data)} bytes, {bytes_max} are room")
    return data


def _read(data: bytes, bytes_max: int) -> dict[str, Any]:
    if len(data) > bytes_max:
        raise ValueError(f"it has {len(data)} bytes")
    try:
        document = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(document, dict) or document.get("v") != VERSION:
        raise ValueError("it is no document of version 1")
    return document


def interests_of(metadata: Mapping[str, bytes]) -> dict[str, Interest]:
    """The members, by id, that say what they read; one member for a slot."""
    found = {member: read_interest(data) for member, data in sorted(metadata.items())}
    slots: set[str] = set()
    kept: dict[str, Interest] = {}
    for member, interest in found.items():
        if interest is not None and interest.slot not in slots:
            slots.add(interest.slot)
            kept[member] = interest
    return kept


def subscribers(interests: Sequence[Interest]) -> dict[frozenset[str], list[str]]:
    """Topics by who reads them: those that the same slots read are dealt out together."""
    by_topic: dict[str, set[str]] = {}
    for interest in interests:
        for topic in interest.topics:
            by_topic.setdefault(topic, set()).add(interest.slot)
    found: dict[frozenset[str], list[str]] = {}
    for topic, slots in sorted(by_topic.items()):
        found.setdefault(frozenset(slots), []).append(topic)
    return found
