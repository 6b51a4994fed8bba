"""Where the reading of splits stands, and which requests for them are under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from keyrange.kafka.connection import Connection
from keyrange.model.offset_splits import Split
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.wire.chunk_decoder import Chunk, Decoder

_LEAST_ASK_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class Cursor:
    """Where the reading of one split stands.

    `from_earliest`: the split begins wherever its log begins; `is_whole`: and it ends wherever that
    ends, so that it is of whichever topic has the name. `leader_epoch` is the newest that is
    known of its partition's, by which brokers tell that they are not the leader, or not yet.
    `read_epoch` is that of the last batch that was read. `distrusted`: what came was damaged, and
    is read again. `near`: the leader is told the client's rack, and may name a replica there.
    """

    split: Split
    position: int
    decoder: Decoder
    from_earliest: bool = False
    is_whole: bool = False
    bytes_read: int = 0
    doubts: int = 0
    replica: int = -1
    leader_epoch: int = -1
    read_epoch: int = -1
    distrusted: bool = False
    near: bool = True

    def __post_init__(self) -> None:
        self.leader_epoch = max(self.leader_epoch, self.split.leader_epoch)

    @property
    def place(self) -> dict[str, Any]:
        """Where it stands, as errors say it."""
        split = self.split
        return {"topic": split.topic, "partition": split.partition, "offset": self.position}

    @property
    def rests_on(self) -> tuple[int, int] | None:
        """A leader epoch, and up to which offset its log is the one that is read: the end that the
        split was planned with, or else what was read so far; None where nothing is known."""
        if self.split.leader_epoch >= 0:
            return self.split.leader_epoch, self.split.until_offset
        if self.read_epoch >= 0 and self.position > self.split.from_offset:
            return self.read_epoch, self.position
        return None

    def trust(self) -> None:
        """What came was whole: the leader is asked again, where another replica was for damage."""
        if self.distrusted:
            self.distrusted, self.replica, self.near = False, -1, True

    def leave_replica(self) -> int:
        """Go to the leader, and stay there where a replica failed: the leader would name the same
        one again. Returns the replica, -1 where the leader was asked."""
        left, self.replica = self.replica, -1
        self.near = self.near and left < 0
        return left

    @property
    def done(self) -> bool:
        return self.position >= self.split.until_offset

    def advance(self, chunk: Chunk) -> None:
        self.position = max(chunk.next_offset, self.position)
        self.bytes_read += len(chunk.data)
        if len(chunk.batches):
            self.read_epoch = int(chunk.batches[-1]["leader_epoch"])

    def ask_bytes(self, most: int) -> int:
        """How many bytes to ask for: what is left of the split by what its records took so far."""
        consumed = self.position - self.split.from_offset
        left = self.split.until_offset - self.position
        if consumed > 0:
            estimate = self.bytes_read / consumed * left
        elif self.split.bytes_estimate > 0:
            estimate = float(self.split.bytes_estimate)
        else:
            return most
        return int(min(most, max(estimate * 1.2 + _LEAST_ASK_BYTES, _LEAST_ASK_BYTES)))


@dataclass(slots=True)
class InFlight:
    """A request that is not answered yet, for so many bytes at most."""

    cursor: Cursor
    connection: Connection
    version: int
    bytes: int


def may_join(
    cursor: Cursor,
    in_flight: Iterable[InFlight],
    bytes_max: int,
    scope: StateScope = OWN_STATE,
) -> bool:
    """Whether a cursor may be asked for beside what is under way.

    One request at a time for each partition, and for those that share the state of keys: where one
    has to be asked again, what comes behind it would be read before it, and the records of a key
    would change places.
    """
    home, asked_bytes = scope.home(cursor.split.topic_partition), 0
    for asked in in_flight:
        asked_bytes += asked.bytes
        if scope.home(asked.cursor.split.topic_partition) == home:
            return False
    return asked_bytes <= bytes_max


def take_back(connection: Connection, in_flight: deque[InFlight], waiting: deque[Cursor]) -> None:
    """Let the requests on a connection that broke wait again, in their order."""
    if connection.fresh or connection.busy:
        return
    lost = [asked for asked in in_flight if asked.connection is connection]
    for asked in reversed(lost):
        in_flight.remove(asked)
        waiting.appendleft(asked.cursor)
