"""Transactions that consumers of a group have left: what is in Kafka of them, and what of it is not
in the commit table yet.

A consumer prepares the commit that it is to write, ends its transaction in Kafka with a mark, and
writes the commit. Whoever claims its key ranges ends what it has open, and finds by the mark
whether the prepared commit has to be written.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from keyrange.consumer.settings import ConsumerSettings
from keyrange.errors import error
from keyrange.individual_commits.model.commit import Commit
from keyrange.individual_commits.table.prepared_commits import PreparedCommit, PreparedCommits
from keyrange.kafka.model.sender_messages import Token
from keyrange.sending.marked_sender import MarkedSender
from keyrange.sending.topic_address import TopicAddress


def new_mark(number: int) -> Token:
    """A mark that no other transaction has."""
    return Token(number, uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class Left:
    """`commit`: of a transaction that is out and not in the table. `files`: all that was prepared,
    which nobody needs any more once that is written."""

    commit: Commit | None
    files: Sequence[PreparedCommit]


class LeftTransactions:
    """Those of the group that the settings name."""

    def __init__(self, settings: ConsumerSettings) -> None:
        source, commits = settings.source, settings.source.commits
        self._client, self._producer = settings.producer_client, settings.producer
        self._group, self._if_forgotten = commits.group, settings.if_forgotten
        self.prepared = PreparedCommits(source.commits.table, commits.revealed_storage())

    def sender(self, slot: str, marks: str) -> MarkedSender:
        """What sends the transactions of a slot, with marks beside a topic. A slot's name has no
        colon, so no two have one id."""
        address = TopicAddress("", marks, self._client, self._producer)
        return MarkedSender(address, f"keyrange:{self._group}:{slot}")

    def left_by(
        self, source: str, slot: str, marks: str, is_written: Callable[[Commit], bool]
    ) -> Left:
        """End what a slot's writer has open in Kafka, and find what of it is not in the table.
        `is_written` tells of a commit whether it is.

        The writer's claim has to be over: otherwise it would begin again. Raises
        TRANSACTION_FORGOTTEN, and as `MarkedSender.start` and `PreparedCommits.of` do.
        """
        with closing(self.sender(slot, marks)) as sender:
            # Before the files are looked at: none comes to count after it.
            mark = sender.start()
        files = self.prepared.of(source)
        left = [each for each in files if not is_written(each.commit)]
        if left and mark is None:
            return Left(self._forgotten(slot, left), files)
        found = (each.commit for each in left if mark and each.mark == mark.text)
        return Left(next(found, None), files)

    def _forgotten(self, slot: str, left: list[PreparedCommit]) -> Commit | None:
        if self._if_forgotten == "fail":
            raise error(
                "TRANSACTION_FORGOTTEN",
                f"group keyrange:{self._group}:{slot} has no mark any more, which would tell "
                f"whether the last transaction of consumer {slot} is committed",
                slot=slot,
            )
        if self._if_forgotten == "send":
            return None
        return max((each.commit for each in left), key=lambda commit: commit.seq)
