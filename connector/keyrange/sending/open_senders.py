"""The senders of a driver: those of its own output, and those of drivers that it has stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from keyrange.errors import KeyrangeError
from keyrange.sending.model.marks import Mark
from keyrange.sending.shard_sender import ShardSender, Share
from keyrange.sending.topic_address import TopicAddress
from keyrange.storage.model.sink_driver import Driver

# Long before Kafka forgets a mark.
_MARKED_S: Final = 6 * 3600.0


@dataclass
class OpenSenders:
    """The senders that a driver keeps from one batch to the next, by application, output and
    number, and when each left its mark."""

    address: TopicAddress
    senders: dict[tuple[str, str, int], ShardSender] = field(default_factory=dict)
    marked_at: dict[tuple[str, str, int], float] = field(default_factory=dict)

    def opened(self, application: str, name: str, number: int) -> ShardSender:
        key = (application, name, number)
        if key not in self.senders:
            self.senders[key] = ShardSender(self.address, *key)
        return self.senders[key]

    def close(self) -> None:
        for each in self.senders.values():
            each.close()
        self.senders.clear()

    def is_marked(self, application: str, name: str, number: int) -> bool:
        at = self.marked_at.get((application, name, number))
        return at is not None and time.monotonic() - at < _MARKED_S

    def marked(self, application: str, name: str, number: int) -> None:
        self.marked_at[application, name, number] = time.monotonic()

    def send(self, share: Share) -> None:
        """By a sender of this process. Raises as `ShardSender.send`."""
        sender = self.opened(share.application, share.name, share.number)
        try:
            sender.send(share)
        except KeyrangeError as failure:
            if failure.condition.name != "PRODUCER_FENCED":
                raise
            # By a task of an earlier batch, or by another driver: who counts is asked once more.
            sender.send(share)

    def taken_over(
        self, application: str, name: str, driver: Driver, senders: int = 1
    ) -> Iterator[Mark]:
        """Let nothing more come from the senders of a driver that another one has stopped; the
        marks that they have left, each before it says so."""
        # Of one that never left a mark here, or whose marks are gone.
        number = 0
        while number < senders:
            with closing(ShardSender(self.address, application, name, number)) as sender:
                known = sender.start() or Mark(driver.committed.get(application, -1))
                senders = max(senders, known.senders)
                yield known
                if known.driver < driver.number:
                    sender.leave(known.of_driver(driver.number, senders))
            number += 1


def number_of(driver: Driver | None) -> int:
    return 0 if driver is None else driver.number
