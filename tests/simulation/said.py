"""What queries say of records that are gone before they were read: the warnings, and what progress
tells of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from keyrange.model.checkpoint import RESERVED, Checkpoint
from keyrange.model.lost_offset_counts import Lost, read_lost
from keyrange.model.offsets import OffsetRange, TopicPartition
from simulation.topics import Place, Topics

_ROOT = logging.getLogger("keyrange")
_UNREADABLE = re.compile(
    r"cannot read offsets \[(\d+), (\d+)\) of topic partition (\S+)-(\d+)|"
    r"topic (\S+) was deleted and created anew|partitions (.+) are gone|"
    r"the (?:end|log) of partition (\S+)-(\d+) was (?:changed|cut back)"
)


class Said(logging.Handler):
    """`lost`: records that were said to be gone, and were; `wrong`: what was said of one that was
    there."""

    def __init__(self, topics: Topics) -> None:
        super().__init__(logging.WARNING)
        self._topics = topics
        self.lost: set[Place] = set()
        self.wrong: list[str] = []
        # Partitions whose end was said to lie behind where it was.
        self.fell: set[TopicPartition] = set()
        # Topics and partitions of which all is lost, up to which generation.
        self._whole: dict[str | TopicPartition, int] = {}
        # What the driver that is at work has logged since it planned a batch.
        self._untold: list[Lost] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Nobody else hears meanwhile what is logged."""
        _ROOT.addHandler(self)
        _ROOT.propagate = False
        try:
            yield
        finally:
            _ROOT.removeHandler(self)
            _ROOT.propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        args = record.args if isinstance(record.args, tuple) else ()
        if args and isinstance(args[0], Lost):
            self._untold.append(args[0])
            self._lose(args[0])
            if "begins behind" in record.getMessage():
                self._check_gone(args[0])
        elif "Going on with what is left" in record.msg % args:
            self._read(record.getMessage())

    def knows(self, place: Place) -> bool:
        """Whether it was said that a record that is gone is gone."""
        whole = max(
            self._whole.get(place.topic, -1),
            self._whole.get(TopicPartition(place.topic, place.partition), -1),
        )
        return place in self.lost or place.generation <= whole

    @contextmanager
    def by(self, untold: list[Lost]) -> Iterator[None]:
        """A driver is at work that has logged so much since it planned a batch."""
        before, self._untold = self._untold, untold
        try:
            yield
        finally:
            self._untold = before

    def check_progress(self, progress: Mapping[str, Any] | None) -> None:
        """The progress of a driver tells what it has logged since it planned a batch."""
        losses = (progress or {}).get(RESERVED, {}).get("metrics", {}).get("losses")
        if losses is not None:
            found = list(read_lost(losses["found"]))
            assert found == self._untold, f"told {found}, logged {self._untold}"

    def check_told(self, gone: Iterable[Place], start: Checkpoint, end: Checkpoint) -> None:
        """The records of a batch that were gone before it was planned were told."""
        topics = self._topics
        for at in gone:
            partition = TopicPartition(at.topic, at.partition)
            if topics.generations[at.topic] == at.generation and (
                end.topic_ids.get(at.topic) == topics.ids[at.topic]
            ):
                begin = end.start_of(partition, start)
                is_of_batch = begin is not None and begin <= at.offset < end.known[partition]
                assert not is_of_batch or at in self.lost, f"{at} is gone and was not told"

    def _read(self, text: str) -> None:
        for each in _UNREADABLE.finditer(text):
            begin, end, topic, number, recreated, deleted, fell, of = each.groups()
            if topic:
                place = TopicPartition(topic, int(number))
                self._lose(Lost(place, OffsetRange(int(begin), int(end))))
            elif recreated:
                self._whole[recreated] = self._topics.generations[recreated] - 1
            elif fell:
                self.fell.add(TopicPartition(fell, int(of)))
            for name in (deleted or "").split(", "):
                topic, _, number = name.rpartition("-")
                if topic:
                    place = TopicPartition(topic, int(number))
                    self._whole[place] = self._topics.generations[topic]

    def _lose(self, lost: Lost) -> None:
        self.lost.update(each for each in self._topics.gone if _within(each, lost))

    def _check_gone(self, lost: Lost) -> None:
        log = self._topics.logs.get(lost.partition)
        there = log and [at for at in log.keys if at >= log.start]
        if there and lost.span.from_offset <= there[0] < lost.span.until_offset:
            self.wrong.append(f"{lost} is said to be lost, and {there[0]} is there")


def _within(place: Place, lost: Lost) -> bool:
    span = lost.span
    return place[:2] == lost.partition and span.from_offset <= place.offset < span.until_offset
