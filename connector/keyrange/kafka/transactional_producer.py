"""Transactions to a cluster, one after the other, under one transactional id.

Runs a `TransactionalSender` over blocking connections: questions to coordinators are asked and
answered one by one; requests with batches go ahead of their answers, which are taken in the order
of the requests.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import read_metadata
from keyrange.kafka.connection import Connection, ConnectionLost
from keyrange.kafka.messages import transactions
from keyrange.kafka.model.partition_lanes import Backoff
from keyrange.kafka.model.sender_messages import (
    Answer,
    Batch,
    FindCoordinator,
    FindLeaders,
    Produce,
    Send,
    Token,
)
from keyrange.kafka.model.sender_states import ABORTABLE, Phase
from keyrange.kafka.model.transactional_sender import (
    Failure,
    SenderSettings,
    TransactionalSender,
)

_SLEEP_S_MAX: Final = 1.0


@dataclass(slots=True)
class _Ahead:
    """A request whose answer is still to come, by a time of `time.monotonic`."""

    send: Send
    connection: Connection
    by: float


class TransactionalProducer:
    """Not for use by several threads. `start` once, then `send` transaction by transaction.

    After an error of `send` that is no end (`is_over` is false) another transaction may follow.
    """

    def __init__(self, cluster: Cluster, settings: SenderSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sender = TransactionalSender(settings)
        self._ahead: deque[_Ahead] = deque()
        # Addresses of brokers by their id, as the cluster has told them.
        self._addresses: dict[int, tuple[str, int]] = {}

    @property
    def failure(self) -> Failure | None:
        """Why the last transaction or the sender ended."""
        return self._sender.failure

    @property
    def is_over(self) -> bool:
        return self._sender.phase is Phase.OVER

    def start(self) -> Token | None:
        """Fence whoever sent before, and return the token of the last committed transaction.

        None: no transaction was ever committed, or the group's offset was forgotten. Raises
        PRODUCER_FENCED, AUTHORIZATION_FAILED, TRANSACTION_REFUSED, RECORDS_NOT_DELIVERED,
        UNSUPPORTED_BROKER, and what a first contact raises.
        """
        brokers = self._cluster.brokers(self._settings.delivery_timeout_ms)
        self._addresses = {each.node_id: (each.host, each.port) for each in brokers.values()}
        level = self._cluster.features().get(transactions.FEATURE, 0)
        client = self._cluster.settings
        settings = replace(
            self._settings,
            bumps_epochs=level >= transactions.FEATURE_LEVEL,
            backoff=Backoff(client.retry_backoff_ms, client.retry_backoff_max_ms),
        )
        self._sender = TransactionalSender(settings)
        self._run()
        return self._sender.token

    def send(self, batches: Iterable[Batch], token: Token) -> None:
        """Send a transaction: all of the batches and the token, or nothing of it.

        Raises as `start` does, and MESSAGE_TOO_LARGE, INVALID_RECORD, TRANSACTION_ABORTED;
        `failure` has the batch. What `batches` raises aborts the transaction.
        """
        if self._sender.failure is not None and self.is_over:
            raise self._sender.failure.error
        self._sender.begin()
        try:
            self._offer(batches)
        except Exception as failure:
            self._sender.abort(_as_error(failure))
            self._settle()
            raise
        self._sender.commit(token)
        self._run()
        self._cluster.has_answered()

    def _offer(self, batches: Iterable[Batch]) -> None:
        """Take batches, and send them meanwhile: each time that there may be another request."""
        waiting = 0
        for batch in batches:
            self._sender.offer(batch, _now_ms())
            waiting += batch.size_bytes
            if waiting >= self._settings.request_bytes:
                waiting = 0
                self._send_all()
                self._take_what_came()
            while self._sender.phase is Phase.SENDING and (
                self._sender.unacknowledged_bytes > self._settings.ahead_bytes
            ):
                self._turn()
            if self._sender.phase is not Phase.SENDING:
                return

    def _run(self) -> None:
        """Until the sender is ready again; raises what ended the transaction or the sender."""
        self._settle()
        if self._sender.failure is not None:
            raise self._sender.failure.error

    def _settle(self) -> None:
        while self._sender.phase not in (Phase.READY, Phase.OVER):
            self._turn()

    def _turn(self) -> None:
        """Send what is to be sent, then take one answer, or wait."""
        asked, sent = self._send_all()
        if asked:
            # There may be more to send than to wait for.
            return
        if self._ahead:
            self._take()
        elif not sent:
            wait_s = (self._sender.wake_at_ms - _now_ms()) / 1000
            time.sleep(min(max(wait_s, 0.001), _SLEEP_S_MAX))

    def _send_all(self) -> tuple[bool, bool]:
        """Send what is to be sent; returns whether a question was answered, and whether there was
        anything at all."""
        sends = self._sender.next_requests(_now_ms())
        for send in sends:
            if isinstance(send.request, Produce):
                self._send_ahead(send)
            else:
                self._ask(send)
        return any(not isinstance(each.request, Produce) for each in sends), bool(sends)

    def _take_what_came(self) -> None:
        while self._ahead:
            descriptor = self._ahead[0].connection.fileno()
            if descriptor >= 0 and not _has_come(descriptor):
                return
            self._take()

    def _ask(self, send: Send) -> None:
        """One question, answered before anything else is sent."""
        try:
            answer = self._answer(send)
        except ConnectionLost as lost:
            self._sender.failed(send, str(lost), _now_ms())
        except KeyrangeError as failure:
            self._sender.failed(send, failure.message, _now_ms())
            _judge(self._sender, failure, asked=True)
        else:
            self._sender.answered(send, answer, _now_ms())

    def _answer(self, send: Send) -> Answer:
        request = send.request
        message = self._message(send)
        if send.node_id is not None:
            host, port = self._address(send.node_id)
            connection = self._cluster.connection(host, port)
            return transactions.read(
                request, connection.call(message, _most(self._sender, message))
            )
        by = self._cluster.deadline(self._cluster.settings.request_timeout_ms)
        said = self._cluster.call_any_broker(message, by)
        if isinstance(request, FindLeaders):
            return self._leaders(request, said)
        if isinstance(request, FindCoordinator) and not said.error_code:
            self._addresses[said.node_id] = (said.host, said.port)
        return transactions.read(request, said)

    def _leaders(self, request: FindLeaders, said: Any) -> Answer:
        view, _, _ = read_metadata(said)
        self._addresses |= {each.node_id: (each.host, each.port) for each in view.brokers.values()}
        found = {place: view.leader(place) for place in request.partitions}
        return Answer(leaders={place: it.node_id for place, it in found.items() if it is not None})

    def _send_ahead(self, send: Send) -> None:
        message = self._message(send)
        connection = None
        try:
            host, port = self._address(send.node_id)
            connection = self._cluster.connection(host, port, ahead=True)
            connection.ask(message, _most(self._sender, message))
        except ConnectionLost as lost:
            if connection is not None:
                self._lose(connection, str(lost))
            self._sender.failed(send, str(lost), _now_ms())
        except KeyrangeError as failure:
            self._sender.failed(send, failure.message, _now_ms())
            _judge(self._sender, failure)
        else:
            by = time.monotonic() + self._cluster.settings.request_timeout_ms / 1000
            self._ahead.append(_Ahead(send, connection, by))

    def _take(self) -> None:
        """The answer to the oldest request with batches."""
        oldest = self._ahead[0]
        try:
            said = oldest.connection.answer(oldest.by)
        except ConnectionLost as lost:
            self._lose(oldest.connection, str(lost))
        except KeyrangeError as failure:
            self._lose(oldest.connection, failure.message)
            _judge(self._sender, failure)
        else:
            self._ahead.popleft()
            answer = transactions.read(oldest.send.request, said)
            self._sender.answered(oldest.send, answer, _now_ms())

    def _lose(self, connection: Connection, why: str) -> None:
        """Nothing comes any more of what was sent over a connection."""
        connection.close()
        lost = [each for each in self._ahead if each.connection is connection]
        self._ahead = deque(each for each in self._ahead if each.connection is not connection)
        for each in lost:
            self._sender.failed(each.send, why, _now_ms())

    def _message(self, send: Send) -> Any:
        timeout_ms = self._cluster.settings.request_timeout_ms
        return transactions.message(send.request, self._sender.settings, timeout_ms)

    def _address(self, node_id: int | None) -> tuple[str, int]:
        if node_id is None or node_id not in self._addresses:
            raise ConnectionLost(f"broker {node_id} has no address")
        return self._addresses[node_id]


def _judge(sender: TransactionalSender, failure: KeyrangeError, asked: bool = False) -> None:
    """What another try would not mend aborts the transaction, or ends the sender; a batch of a
    transaction that is aborted already (`asked` is false) does neither."""
    if failure.retriable:
        return
    if sender.phase in ABORTABLE - {Phase.ENDING}:
        sender.abort(failure)
    elif asked or sender.phase is not Phase.ABORTING:
        sender.end(failure)


def _most(sender: TransactionalSender, message: Any) -> int | None:
    """The highest version of a message for transactions as the cluster has them."""
    if sender.settings.bumps_epochs:
        return None
    return transactions.BEFORE_BUMPS.get(message.name)


def _as_error(failure: Exception) -> KeyrangeError:
    if isinstance(failure, KeyrangeError):
        return failure
    return error("TRANSACTION_ABORTED", f"its batches end with {type(failure).__name__}")


def _has_come(descriptor: int) -> bool:
    """Whether the first bytes of an answer are there."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
