"""A block of a consumer whose output and acknowledgements stand or fall together."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from keyrange.consumer.transaction_output import OutputTopics, Rows, TransactionOutput
from keyrange.errors import error
from keyrange.kafka.model.sender_messages import Batch


class Transaction:
    """What `Consumer.transaction` returns: the `with` block is the transaction.

    `begin` is called with it, `used` with each output, `commit` at the end with what was sent where
    the block does not fail, and `end` behind all.
    """

    def __init__(
        self,
        topics: OutputTopics,
        begin: Callable[[Transaction], None],
        used: Callable[[], None],
        commit: Callable[[Transaction, list[Batch]], None],
        end: Callable[[Transaction], None],
    ) -> None:
        self._begin, self._used, self._commit, self._end = begin, used, commit, end
        self._output: TransactionOutput | None = TransactionOutput(topics)
        self._is_open = False

    def send(self, rows: Rows, topic: str = "") -> None:
        """Send rows to a topic, or without `topic` to those that their column `topic` names, when
        the block ends.

        Rows are Arrow's, or dicts, as Spark's sink takes them: `value` and perhaps `key` (bytes or
        text), `headers` (a list of structs of `key` and `value`), `timestamp` and `partition`.
        Without a partition a row goes by its key, as those of Java's producer do. All are taken or
        none.

        Raises INVALID_TOPIC_COLUMNS, INVALID_RECORD, MESSAGE_TOO_LARGE, UNKNOWN_TOPIC_OR_PARTITION,
        CONSUMER_STATE outside of the block, and what a contact raises.
        """
        if not self._is_open or self._output is None:
            raise error("CONSUMER_STATE", "send was called outside of the transaction's block")
        self._used()
        self._output.add(rows, topic)

    def __enter__(self) -> Self:
        if self._output is None or self._is_open:
            raise error("CONSUMER_STATE", "a transaction is one block: call transaction() for each")
        try:
            self._begin(self)
            self._is_open = True
            return self
        except BaseException:
            self._end(self)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, failure: object, trace: TracebackType | None
    ) -> None:
        try:
            output, self._output, self._is_open = self._output, None, False
            if kind is None:
                assert output is not None
                self._commit(self, output.batches())
        finally:
            self._end(self)
