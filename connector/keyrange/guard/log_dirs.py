"""How full the volumes of all brokers are, as the brokers say it (KIP-827).

Every broker is asked at once, over a connection of its own, and one deadline holds for all. What a
broker does not say is never taken for room: a refusal, an empty answer, a size that is not told and
a directory that is offline are the answer's failure.

Who has to be connected to has a thread for that, and one begins after the other. All others are
asked by one thread, and their answers taken one by one, with a pause behind each: a hundred threads
that wake up together, or one that is not done for long, would keep the interpreter from the thread
that plans a batch.
"""

from __future__ import annotations

import logging
import selectors
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from keyrange.errors import KeyrangeError
from keyrange.guard.model.volume_readings import LogDirs, VolumeReading
from keyrange.kafka.cluster import FIRST_CONTACT_MS, Cluster
from keyrange.kafka.cluster_view import Broker
from keyrange.kafka.connection import Connection, ConnectionLost
from keyrange.kafka.messages import protocol
from keyrange.kafka.messages.admin import describe_log_dirs
from keyrange.kafka.retry_deadline import Deadline
from keyrange.kafka.security.exposure import warn_of_exposure
from keyrange.model.volumes import Volume
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.volume_checks import ADMIN_PREFIX

_log = logging.getLogger(__name__)

# What is left of the time is for brokers that came, or moved, while the others were asked.
_FIRST_ROUND_SHARE: Final = 0.7
TIMED_OUT: Final = "timed out"
# Behind each request, and each answer that is read.
_BREATH_S: Final = 0.0005
# Between two brokers that are connected to: what a connection takes of the interpreter.
_CONNECT_PACE_S: Final = 0.002
# How long the rest of an answer may take that has begun to come.
_REST_MS: Final = 500


def yield_gil() -> None:
    """Let other threads of this process go on, in the midst of much that is to be done."""
    time.sleep(_BREATH_S)


class LogDirReader:
    """Asks all brokers of a cluster, and keeps the connections. Not for use by several threads."""

    def __init__(self, settings: ClientSettings) -> None:
        warn_of_exposure(settings, ADMIN_PREFIX)
        self._settings = settings
        self._cluster = Cluster(settings)
        self._connections: dict[Broker, Connection] = {}

    def close(self) -> None:
        self._cluster.close()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def read(self, timeout_ms: float) -> VolumeReading:
        """One check, within `timeout_ms`.

        Where a broker did not answer, the cluster is described once more: one that has left is not
        waited for, and one that has come is asked too. Raises BROKER_UNREACHABLE, DeniedError where
        the cluster itself cannot be described.
        """
        by = self._cluster.deadline(timeout_ms)
        brokers = self._describe(by)
        first = self._cluster.deadline(by.left_ms * _FIRST_ROUND_SHARE)
        answers = self._ask(brokers.values(), first)
        if any(answer.failure for answer in answers.values()):
            now = self._described_again(brokers, by)
            if now != brokers:
                asked = [b for b in now.values() if not _answered(b, brokers, answers)]
                answers |= self._ask(asked, by)
                brokers = now
        for left in self._connections.keys() - set(brokers.values()):
            self._connections.pop(left).close()
        heard = {node for node, answer in answers.items() if not answer.failure}
        ids = frozenset(brokers.keys() | heard)
        return VolumeReading(ids, tuple(answers[node] for node in sorted(ids & answers.keys())))

    def _describe(self, by: Deadline) -> dict[int, Broker]:
        limit_ms = min(max(by.left_ms, 1), FIRST_CONTACT_MS)
        return dict(self._cluster.brokers(limit_ms))

    def _described_again(self, before: dict[int, Broker], by: Deadline) -> dict[int, Broker]:
        if by.passed:
            return before
        try:
            return self._describe(by)
        except KeyrangeError as failure:
            _log.info("the cluster could not be described again: %s", failure)
            return before

    def _ask(self, brokers: Iterable[Broker], by: Deadline) -> dict[int, LogDirs]:
        """The answer of each broker; TIMED_OUT is that of a broker which gave none in time."""
        wanted = {broker.node_id: broker for broker in brokers}
        current = _Round(len(wanted))

        def connect(broker: Broker, is_proven: bool) -> None:
            # A thread each, since a broker that is gone without a word holds up who connects to it.
            threading.Thread(
                target=_connect_and_ask,
                args=(broker, is_proven, self._settings, by, current),
                name=f"log-dirs-{broker.node_id}",
                daemon=True,
            ).start()
            time.sleep(_CONNECT_PACE_S)

        waiting: _Waiting = {}
        for broker in wanted.values():
            kept = self._connections.pop(broker, None)
            if kept is None or not kept.usable:
                connect(broker, kept is not None and kept.proven)
                if kept is not None:
                    kept.close()
                continue
            kept.set_timeout(by.left_ms)
            try:
                kept.ask(describe_log_dirs())
            except (ConnectionLost, KeyrangeError):
                connect(broker, kept.proven)
                continue
            waiting[kept.fileno()] = broker, kept
            yield_gil()
        _take(waiting, current, by, connect)
        found = current.collect(by)
        for node, (_, connection) in found.items():
            if connection is not None and connection.usable:
                self._connections[wanted[node]] = connection
        silent = {node: LogDirs(node, (), TIMED_OUT) for node in wanted}
        return silent | {node: answer for node, (answer, _) in found.items()}


# Brokers that were asked over a connection from before, by its file number.
_Waiting = dict[int, tuple[Broker, Connection]]
_Answer = tuple[LogDirs, Connection | None]


class _Round:
    """The answers of one round, as far as they come in time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._answers: dict[int, _Answer] = {}
        self._over = False
        self._changed = threading.Condition()

    def deliver(self, answer: LogDirs, connection: Connection | None) -> bool:
        """False where nobody waits for it any longer: then the connection stays the caller's."""
        with self._changed:
            if not self._over:
                self._answers[answer.broker] = (answer, connection)
                self._changed.notify()
            return not self._over

    def collect(self, by: Deadline) -> dict[int, _Answer]:
        with self._changed:
            while len(self._answers) < self._count and not by.passed:
                self._changed.wait(by.left_ms / 1000)
            self._over = True
            return self._answers


def _take(
    waiting: _Waiting, current: _Round, by: Deadline, connect: Callable[[Broker, bool], None]
) -> None:
    """The answers over open connections, as they come until the deadline; what says nothing is
    closed then.

    A connection that breaks is one that the broker closed, as it does with what was idle for long:
    then `connect` asks that broker anew.
    """
    with selectors.DefaultSelector() as selector:
        for number in waiting:
            selector.register(number, selectors.EVENT_READ)
        while waiting and not by.passed:
            for key, _ in selector.select(max(by.left_ms, 0) / 1000):
                selector.unregister(key.fd)
                broker, connection = waiting.pop(key.fd)
                connection.set_timeout(min(max(by.left_ms, 1), _REST_MS))
                try:
                    answer = _said(broker.node_id, connection.answer)
                except ConnectionLost:
                    connect(broker, connection.proven)
                else:
                    current.deliver(answer, connection)
                yield_gil()
    for _, connection in waiting.values():
        connection.close()


def _connect_and_ask(
    broker: Broker, is_proven: bool, settings: ClientSettings, by: Deadline, current: _Round
) -> None:
    """Connects to one broker and asks it, in a thread of its own."""
    made: list[Connection] = []

    def call() -> Any:
        left_ms = max(int(by.left_ms), 1)
        made.append(Connection.connect(broker.host, broker.port, settings, left_ms, is_proven))
        made[0].set_timeout(by.left_ms)
        return made[0].call(describe_log_dirs())

    try:
        answer = _said(broker.node_id, call)
    except ConnectionLost as lost:
        said = TIMED_OUT if by.passed else f"connection lost: {lost}"
        answer = LogDirs(broker.node_id, (), said)
    if not current.deliver(answer, made[0] if made else None):
        for connection in made:
            connection.close()


def _said(node: int, ask: Callable[[], Any]) -> LogDirs:
    """What a broker answers, or why it does not; raises ConnectionLost."""
    try:
        return read_log_dirs(node, ask())
    except KeyrangeError as failure:
        return LogDirs(node, (), f"{failure.condition.name}: {failure.message}")
    except ConnectionLost:
        raise
    except Exception as failure:
        # The round would wait for this broker until its end, and nobody learn why.
        _log.exception("broker %s could not be asked", node)
        return LogDirs(node, (), f"{type(failure).__name__}: {failure}")


def read_log_dirs(broker: int, answer: Any) -> LogDirs:
    """What an answer says; `failure` names each thing that it does not say."""
    if answer.error_code:
        name = protocol.error_name(answer.error_code)
        is_denied = answer.error_code == protocol.Code.CLUSTER_AUTHORIZATION_FAILED
        needed = ": the principal needs DESCRIBE on the cluster" if is_denied else ""
        return LogDirs(broker, (), f"{name}{needed}")
    volumes: list[Volume] = []
    failures: list[str] = []
    for each in answer.results:
        if each.error_code:
            failures.append(f"{protocol.error_name(each.error_code)} {each.log_dir}")
        elif each.total_bytes <= 0 or each.usable_bytes < 0:
            failures.append(f"size not told {each.log_dir}")
        else:
            volumes.append(Volume(broker, each.log_dir, each.total_bytes, each.usable_bytes))
    if not answer.results:
        failures.append("no log dirs")
    return LogDirs(broker, tuple(volumes), ", ".join(failures))


def _answered(broker: Broker, before: Mapping[int, Broker], answers: Mapping[int, LogDirs]) -> bool:
    """Whether a broker has said all, and is still where it was asked."""
    answer = answers.get(broker.node_id)
    return answer is not None and not answer.failure and before.get(broker.node_id) == broker
