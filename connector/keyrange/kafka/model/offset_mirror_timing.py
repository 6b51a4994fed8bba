"""When a query's committed positions are told to a Kafka group: what, when again, what to say.

The group's offsets are for people and their tools. Nothing is ever read from them, so a commit that
fails costs nothing but a while of a wrong lag: it is tried again later, and said once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from keyrange.model.offsets import Positions, TopicPartition

# What the text begins with that a query writes beside each offset: the rest names the run.
MARK: Final = "keyrange: "


# After a failure the pause doubles, from the first one up to the longest.
RETRY_MS: Final = 1_000
RETRY_MAX_MS: Final = 60_000
# So often all positions are committed again: Kafka forgets an offset that nobody has committed for
# offsets.retention.minutes (seven days), also while the query stands there.
REFRESH_MS: Final = 3_600_000
# So often the marks of the group are looked at.
LOOK_MS: Final = 60_000


class MirrorState:
    """What was acknowledged, what is due, and what has been said. Times are ms of one clock.

    `mark` is this run's alone, and goes with every offset: where another stands beside what this
    run has committed, another has committed it since. Without a mark nothing is told of that.
    """

    def __init__(self, mark: str = "") -> None:
        self._mark = mark
        self._look_at_ms: float | None = None
        self._acknowledged: dict[TopicPartition, int] = {}
        self._refresh_at_ms: float | None = None
        self._wait_until_ms: float | None = None
        self._pause_ms = RETRY_MS
        self._said: set[str] = set()
        # Partitions of topics that Kafka does not know, and when they are tried again.
        self._absent: dict[TopicPartition, float] = {}
        self._last_error = ""
        self._counts = {"committed": 0, "refused": 0, "failed": 0}

    def due(self, positions: Positions, now_ms: float) -> dict[TopicPartition, int]:
        """The positions to commit now; none within the pause that follows a failure.

        `positions` are all those that are durably committed by the query.
        """
        # A partition that went may come back, as another one with the same name: it starts anew.
        self._acknowledged = {p: at for p, at in self._acknowledged.items() if p in positions}
        self._absent = {p: until for p, until in self._absent.items() if p in positions}
        if self._wait_until_ms is not None and now_ms < self._wait_until_ms:
            return {}
        if self._refresh_at_ms is not None and now_ms >= self._refresh_at_ms:
            self._acknowledged.clear()
        return {
            p: at
            for p, at in positions.items()
            if self._acknowledged.get(p) != at and self._absent.get(p, now_ms) <= now_ms
        }

    def acknowledge(self, committed: Positions, now_ms: float) -> None:
        """Kafka has taken `committed`, which `due` gave."""
        if not self._acknowledged:
            self._refresh_at_ms = now_ms + REFRESH_MS
        self._acknowledged.update(committed)
        for partition in committed:
            self._absent.pop(partition, None)
        self._wait_until_ms = None
        self._pause_ms = RETRY_MS
        self._said.clear()
        self._last_error = ""
        self._counts["committed"] += 1

    def to_look_at(self, now_ms: float) -> list[TopicPartition]:
        """The partitions whose marks to look at before the next commit: none between two looks,
        and none once another was found."""
        early = self._look_at_ms is not None and now_ms < self._look_at_ms
        if not self._mark or early or not self._acknowledged:
            return []
        self._look_at_ms = now_ms + LOOK_MS
        return sorted(self._acknowledged)

    def other(self, marks: Mapping[TopicPartition, str]) -> tuple[TopicPartition, str] | None:
        """A partition that another run has committed since this one did, and its mark; once.

        `marks` are of `to_look_at`. What is no mark was written by a tool: that is no query.
        """
        for partition, mark in sorted(marks.items()):
            if mark.startswith(MARK) and mark != self._mark:
                # Told once, it is not looked for any more.
                self._mark = ""
                return partition, mark.removeprefix(MARK)
        return None

    def give_up(
        self,
        outcome: Literal["refused", "failed"],
        tried: Positions,
        reason: str,
        text: str,
        now_ms: float,
    ) -> bool:
        """Kafka does not want them, or whether it has taken them is unknown; returns whether that
        has to be said: once for each reason."""
        # Whatever Kafka holds of them: they are sent again even if the query goes back.
        for partition in tried:
            self._acknowledged.pop(partition, None)
        self._wait_until_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, RETRY_MAX_MS)
        self._counts[outcome] += 1
        self._last_error = text
        first = reason not in self._said
        self._said.add(reason)
        return first

    def leave_out(self, absent: Iterable[TopicPartition], text: str, now_ms: float) -> bool:
        """Kafka knows no such topics, though the query has read them: they hold up no others.

        Returns whether that has to be said: once for each partition, until Kafka takes it.
        """
        partitions = set(absent)
        first = not partitions <= self._absent.keys()
        self._absent |= dict.fromkeys(partitions, now_ms + RETRY_MAX_MS)
        for partition in partitions:
            self._acknowledged.pop(partition, None)
        self._counts["failed"] += 1
        self._last_error = text
        return first

    def metrics(self) -> dict[str, int | str]:
        """How many commits went how, and the error since the last one that went well, or ""."""
        return {**self._counts, "lastError": self._last_error}
