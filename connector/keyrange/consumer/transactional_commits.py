"""Commits of one consumer that stand or fall with a transaction in Kafka.

The order of steps is what holds against deaths at any of them. The commit is prepared before its
transaction ends, so whoever finds the mark finds the commit. The producer begins before the claim
says that there may be transactions: whoever fences that claim begins a producer after this one,
which ends it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import Enum
from typing import Final

from keyrange.consumer.commit_log import CommitLog
from keyrange.consumer.left_transactions import LeftTransactions, new_mark
from keyrange.consumer.settings import ConsumerSettings
from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.commit import Commit
from keyrange.individual_commits.table.prepared_commits import PreparedCommit
from keyrange.kafka.model.sender_messages import Batch, Token
from keyrange.sending.marked_sender import MarkedSender

# A transaction that Kafka wants to be sent once more.
_TRIES: Final = 5
# Long before Kafka forgets a mark.
_MARKED_S: Final = 6 * 3600.0


class Stage(Enum):
    """How far the last transaction has come."""

    # Nothing of it is seen, and nothing will be.
    NOT_SENT = "not sent"
    # It may be committed: whoever claims next learns it.
    UNSURE = "unsure"
    # It is committed in Kafka.
    SENT = "sent"


class TransactionalCommits:
    """Those of the slot that writes `log`. To be read: `stage`."""

    def __init__(self, settings: ConsumerSettings, log: CommitLog) -> None:
        self._left = LeftTransactions(settings)
        self._log = log
        self._again_s = settings.producer.delivery_timeout_ms / 1000
        self._sender: MarkedSender | None = None
        # Whether the claim was found to hold since the sender has begun.
        self._is_checked = False
        self._marked_at = 0.0
        self.stage = Stage.NOT_SENT

    def close(self) -> None:
        """Begin anew with the next transaction: the claim is another one, which has asked for what
        was unsure."""
        self.stage = Stage.NOT_SENT
        if self._sender is not None:
            self._sender.close()
        self._sender = None

    def settled(self) -> None:
        """What follows is another transaction: the last one, if it was sent, is in the table."""
        if self.stage is Stage.SENT:
            self.stage = Stage.NOT_SENT

    def begin(self, marks: str) -> None:
        """Let Kafka and the claim know that there may be a transaction, with marks beside a topic:
        before its commit is planned.

        Raises COMMITS_FENCED where another has claimed what this consumer had, RANGES_LOST where
        what became of the last one is not known, and as `MarkedSender` does."""
        if self.stage is Stage.UNSURE:
            # The mark of another one would stand in the place of what tells.
            message = "the last transaction is unsure, and the ranges are not claimed since"
            raise error("RANGES_LOST", message, slot=self._log.slot)
        sender = self._started(marks)
        if self._is_mark_old:
            self._leave_mark(sender)

    def write(self, commit: Commit, batches: Sequence[Batch]) -> None:
        """Write a commit that was planned, and send batches: both or nothing of it. `stage` says
        how far it came.

        Raises as `begin`, RANGES_LOST where nobody knows what became of it, and as
        `CommitLog.write` and `PreparedCommits.write` do.
        """
        assert self._sender is not None, "begin was not called"
        mark = new_mark(commit.seq)
        self._left.prepared.write(PreparedCommit(commit, mark.text))
        self._send(self._sender, batches, mark)
        self._log.write(commit)

    def _started(self, marks: str) -> MarkedSender:
        """A sender that has begun before this consumer's claim was found to hold."""
        sender = self._sender
        if sender is None:
            sender = self._left.sender(self._log.slot, marks)
            try:
                sender.start()
                # Who has the claim now may have a transaction, of which only the mark tells.
                self._log.check_holds()
                # So that a mark which is not there was forgotten, and none is that of an earlier
                # transaction.
                self._leave_mark(sender)
                self._log.announce(marks)
            except BaseException:
                sender.close()
                raise
            self._sender, self._is_checked = sender, True
        # Kafka forgets who sent nothing for as long as it forgets marks.
        if not sender.is_started or self._is_mark_old:
            self._begin_anew(sender)
        if not self._is_checked:
            self._check()
        return sender

    @property
    def _is_mark_old(self) -> bool:
        return time.monotonic() - self._marked_at >= _MARKED_S

    def _begin_anew(self, sender: MarkedSender) -> Token | None:
        self._is_checked = False
        return sender.start()

    def _check(self) -> None:
        self._log.check_holds()
        self._is_checked = True

    def _leave_mark(self, sender: MarkedSender) -> None:
        sender.send((), new_mark(0))
        self._marked_at = time.monotonic()

    def _send(self, sender: MarkedSender, batches: Sequence[Batch], mark: Token) -> None:
        again_until = time.monotonic() + self._again_s
        for tries_left in reversed(range(_TRIES)):
            self.stage = Stage.UNSURE
            try:
                sender.send(batches, mark)
            except KeyrangeError as failure:
                if not self._is_out(sender, mark, failure):
                    self.stage = Stage.NOT_SENT
                    # Others may have the ranges: then what was prepared is not to be sent again.
                    self._check()
                    if not failure.retriable or not tries_left or time.monotonic() > again_until:
                        raise
                    continue
            self.stage = Stage.SENT
            self._marked_at = time.monotonic()
            return

    def _is_out(self, sender: MarkedSender, mark: Token, failure: KeyrangeError) -> bool:
        """Whether a transaction is committed whose end has failed. Raises RANGES_LOST where Kafka
        cannot be asked."""
        try:
            known = self._begin_anew(sender)
        except KeyrangeError as away:
            message = f"whether the transaction is committed is not known ({failure.message})"
            raise error("RANGES_LOST", message, slot=self._log.slot) from away
        if known is None:
            message = "Kafka has forgotten whether the transaction is committed"
            raise error("RANGES_LOST", message, slot=self._log.slot) from failure
        return known.text == mark.text
