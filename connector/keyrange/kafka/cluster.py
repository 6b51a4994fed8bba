"""One Kafka cluster as its client sees it: brokers, topics, leaders, and the ends of partitions.

Requests to several brokers go out together and are answered together. What passes by itself (a
leader that moves, a broker that restarts) is asked again until a deadline; what does not is raised
at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Final

from keyrange.errors import DeniedError, InvalidError, KeyrangeError, error
from keyrange.kafka.cluster_view import (
    Answers,
    Broker,
    ClusterView,
    Failures,
    Topic,
    read_metadata,
    read_numbers,
)
from keyrange.kafka.connection import Connection, ConnectionLost
from keyrange.kafka.failed_tries import FailedTries
from keyrange.kafka.leader_answers import (
    LEFT_OUT,
    UNREACHABLE,
    check_offsets,
    no_answer,
    unanswered,
)
from keyrange.kafka.messages import protocol
from keyrange.kafka.retry_deadline import Deadline
from keyrange.model.offsets import TopicPartition, by_topic, topic_name_fault
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.security_properties import SecuritySettings

# The first contact of a query is judged soon: a wrong address or password should be named while
# somebody is looking.
FIRST_CONTACT_MS: Final = 8_000
# The ways to clusters that have answered this process.
_CONTACTED: Final[set[Hashable]] = set()
# Topics that were created a moment ago are not known to every broker yet.
_MISSING_TOPIC_MS: Final = 3_000
# A last try is given so long, also where its deadline is nearer: one of so many brokers.
_LAST_TRY_MS: Final = 100
_LAST_TRIES: Final = 5
# So many brokers are asked before the bootstrap servers are: of many all may be gone.
_BEFORE_BOOTSTRAP: Final = 2


# Makes the message from the view and the leader's part of what is wanted.
LeaderRequest = Callable[[ClusterView, Mapping[TopicPartition, int]], Any]
# Adds the answers to a mapping, and returns what failed in passing with the cause.
LeaderAnswer = Callable[[Any, Answers], Failures]


class Cluster:
    """Connections to one cluster, made when needed and kept. Not for use by several threads."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        # Fetches are sent ahead of answers: they have connections of their own, so that a question
        # in between neither waits for them nor costs them their connection.
        self._connections: dict[tuple[str, int, bool], Connection] = {}
        self._brokers: dict[int, Broker] = {}
        self._known_missing: set[str] = set()
        # Whether its leaders have ever answered this process: the first contact is judged sooner.
        self.contacted = _way(settings) in _CONTACTED

    def has_answered(self) -> None:
        """Its leaders have: brokers that are away from now on come back, and this process waits for
        them longer than at first, whichever client it asks."""
        if not self.contacted:
            self.contacted = True
            _CONTACTED.add(_way(self.settings))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(
        self, host: str, port: int, timeout_ms: float | None = None, ahead: bool = False
    ) -> Connection:
        """A ready connection to an address; raises as `Connection.connect` does.

        `ahead`: also one with unanswered requests, for a caller that takes the answers in their
        order. ConnectionLost then says that those have to be answered first.
        """
        connection = self._connections.get((host, port, ahead))
        if connection is not None and (connection.usable or (ahead and connection.fresh)):
            return connection
        if connection is not None and ahead and connection.busy:
            raise ConnectionLost("the connection has to be authenticated again")
        if connection is not None:
            connection.close()
        setup_ms = float(self.settings.socket_connection_setup_timeout_ms)
        limit_ms = setup_ms if timeout_ms is None else max(min(setup_ms, timeout_ms), 1)
        connection = Connection.connect(
            host,
            port,
            self.settings,
            int(limit_ms) or 1,
            proven=any(
                before.proven
                for before in map(self._connections.get, [(host, port, True), (host, port, False)])
                if before is not None
            ),
        )
        self._connections[host, port, ahead] = connection
        return connection

    def describe(
        self,
        topics: Iterable[str],
        timeout_ms: float | None = None,
        may_miss: Collection[str] = (),
    ) -> ClusterView:
        """Brokers, and the partitions of `topics` with their leaders.

        Topics in `may_miss` are left out of the view where they do not exist. Raises
        UNKNOWN_TOPIC_OR_PARTITION that names every other missing topic, AUTHORIZATION_FAILED,
        UNSUPPORTED_BROKER, BROKER_UNREACHABLE that names addresses that were tried.
        """
        names = sorted(set(topics))
        if faults := list(filter(None, map(topic_name_fault, names))):
            raise error("UNKNOWN_TOPIC_OR_PARTITION", "; ".join(faults))
        return self._describe(names, None, timeout_ms, may_miss)

    def topic(self, name: str) -> Topic:
        """One topic, also where partitions have no leader at the moment. Raises as `describe`
        does."""
        if fault := topic_name_fault(name):
            raise error("UNKNOWN_TOPIC_OR_PARTITION", fault)
        return self._describe([name], None, None, (), needs_leaders=False).topics[name]

    def describe_matching(self, matches: Callable[[str], bool]) -> ClusterView:
        """The same of all topics whose name `matches` accepts, Kafka's internal ones left out. No
        match is an empty view. Raises as `describe` does.
        """
        return self._describe(
            None, lambda topic: not topic.is_internal and matches(topic.name), None, ()
        )

    def _describe(
        self,
        names: list[str] | None,
        wanted: Callable[[Any], bool] | None,
        timeout_ms: float | None,
        may_miss: Collection[str],
        needs_leaders: bool = True,
    ) -> ClusterView:
        deadline, asked = self.deadline(timeout_ms), set(names or ())
        missing_for: Deadline | None = None
        while True:
            answer = self._from_any_broker(lambda broker: _ask_metadata(broker, names), deadline)
            view, missing, unready = read_metadata(answer, wanted or (lambda t: t.name in asked))
            if names is None:
                missing = []
            elif left_out := asked.difference(each.name for each in answer.topics):
                unready += [f"{name} ({LEFT_OUT})" for name in sorted(left_out)]
            elif not needs_leaders and view.topics.keys() >= asked:
                unready = []
            self._brokers = dict(view.brokers)
            if not missing and not unready:
                self._known_missing.clear()
                return view
            waits = deadline
            if missing:
                # From the first answer on: before it all brokers may have been away for longer.
                missing_for = missing_for or Deadline(_MISSING_TOPIC_MS, self.settings)
                if missing_for.passed or self._known_missing.issuperset(missing):
                    self._known_missing = set(missing)
                    self._check_missing(missing, may_miss)
                    if not unready:
                        return view
                else:
                    waits = missing_for
            if unready and deadline.passed:
                raise error("BROKER_ERROR", f"partitions have no leader: {', '.join(unready)}")
            waits.pause()

    def _check_missing(self, missing: Collection[str], may_miss: Collection[str]) -> None:
        if unexpected := [name for name in missing if name not in may_miss]:
            raise error(
                "UNKNOWN_TOPIC_OR_PARTITION",
                f"the cluster has no topic named {', '.join(unexpected)}",
                bootstrap_servers=self._bootstrap_text(),
            )

    def brokers(self, timeout_ms: float) -> dict[int, Broker]:
        """The brokers that are there, whether or not records can be read from them.

        Raises BROKER_UNREACHABLE that names addresses that were tried, DeniedError.
        """
        by = self.deadline(timeout_ms)
        answer = self.call_any_broker(protocol.metadata(()), by)
        view, _, _ = read_metadata(answer)
        self._brokers = dict(view.brokers)
        return self._brokers

    def features(self) -> dict[str, int]:
        """The level of each feature that the cluster has agreed on, as a broker that was connected
        to has told it; brokers before 2.7 tell of none."""
        told = (each.features for each in self._connections.values())
        return next(filter(None, told), {})

    def list_offsets(
        self,
        view: ClusterView,
        wanted: Mapping[TopicPartition, int],
        isolation_level: int | None = None,
        timeout_ms: float | None = None,
    ) -> Answers:
        """Offset and leader epoch per partition; `wanted` says EARLIEST, LATEST or a timestamp in
        ms.

        Under read_committed the latest offset is the last stable one. A timestamp behind the last
        record gives -1. Raises BROKER_ERROR that names the partitions without an answer.
        """
        level = (
            protocol.isolation_level(self.settings) if isolation_level is None else isolation_level
        )

        def request(_: ClusterView, wanted: Mapping[TopicPartition, int]) -> Any:
            limit_ms = self.settings.request_timeout_ms
            return protocol.list_offsets(by_topic(wanted), level, limit_ms)

        read = partial(read_numbers, "name", "partition_index", "offset", "leader_epoch")
        found = self.ask_leaders(view, wanted, request, read, timeout_ms)
        self.has_answered()
        return check_offsets(found, wanted)

    def ask_leaders(
        self,
        view: ClusterView,
        wanted: Mapping[TopicPartition, int],
        request: LeaderRequest,
        read: LeaderAnswer,
        timeout_ms: float | None = None,
    ) -> Answers:
        """The answers for all partitions of `wanted`, two numbers each.

        What passes by itself is asked again, with new metadata. Raises BROKER_ERROR that names the
        partitions without an answer, BROKER_UNREACHABLE where their leaders cannot be reached.
        """
        deadline = self.deadline(timeout_ms)
        # The first contact is judged soon, by who can be reached; who was reached may take his
        # time.
        is_first = timeout_ms is None and not self.contacted
        found: Answers = {}
        left = dict(wanted)
        while True:
            failures = self._ask_once(view, left, request, read, found, deadline, is_first)
            left = {partition: left[partition] for partition in failures}
            if not left:
                return found
            if deadline.passed:
                raise no_answer(failures)
            deadline.pause()
            view = self.describe(sorted({p.topic for p in left}), max(deadline.left_ms, 1))

    def _ask_once(
        self,
        view: ClusterView,
        wanted: Mapping[TopicPartition, int],
        request: LeaderRequest,
        read: LeaderAnswer,
        found: Answers,
        deadline: Deadline,
        is_first: bool,
    ) -> Failures:
        """One round to all leaders, who are sent to before an answer is taken; fills `found`,
        returns what failed in passing and why."""
        led = view.by_leader(wanted)
        failures: Failures = {}
        if sum(map(len, led.values())) < len(wanted):
            failures = {each: "no leader" for each in wanted if view.leader(each) is None}
        asked: list[tuple[Connection, list[TopicPartition]]] = []
        for leader, partitions in led.items():
            try:
                connection = self.connection(leader.host, leader.port, deadline.left_ms)
                connection.ask(request(view, {each: wanted[each] for each in partitions}))
                asked.append((connection, partitions))
            except ConnectionLost as lost:
                failures.update(dict.fromkeys(partitions, str(lost)))
            except KeyrangeError as failure:
                if not failure.retriable:
                    raise
                failures.update(dict.fromkeys(partitions, UNREACHABLE + failure.message))
        # One deadline for all: leaders that are silent do not add up.
        limit_ms = float(self.settings.request_timeout_ms)
        if not is_first:
            limit_ms = min(limit_ms, max(deadline.left_ms, _LAST_TRY_MS))
        by = time.monotonic() + limit_ms / 1000
        for connection, partitions in asked:
            try:
                answer = connection.answer(by)
            except ConnectionLost as lost:
                failures.update(dict.fromkeys(partitions, str(lost)))
                continue
            except KeyrangeError as failure:
                if not failure.retriable:
                    raise
                failures.update(dict.fromkeys(partitions, str(failure)))
                continue
            told: Answers = {}
            failures.update(unanswered(read(answer, told), told, partitions))
            found.update({each: told[each] for each in partitions if each in told})
        return failures

    def deadline(self, timeout_ms: float | None) -> Deadline:
        """`timeout_ms` from now; None: what the settings allow, less for the first contact."""
        if timeout_ms is None:
            timeout_ms = self.settings.default_api_timeout_ms
            if not self.contacted:
                timeout_ms = min(FIRST_CONTACT_MS, timeout_ms)
        return Deadline(timeout_ms, self.settings)

    def call(self, host: str, port: int, request: Any, by: Deadline) -> Any:
        """The answer of one broker, whole before the deadline.

        Raises ConnectionLost, and as `connection` does.
        """
        connection = self.connection(host, port, by.left_ms)
        return self._within(by.left_ms, connection, lambda: connection.call(request))

    def call_any_broker(self, request: Any, by: Deadline) -> Any:
        """The answer of the first broker that gives one; raises BROKER_UNREACHABLE, DeniedError."""
        return self._from_any_broker(lambda each: each.call(request), by)

    def _within(self, limit_ms: float, connection: Connection, ask: Callable[[], Any]) -> Any:
        """What is asked on a connection, each request of it in so much time."""
        usual_ms = self.settings.request_timeout_ms
        connection.set_timeout(min(max(limit_ms, _LAST_TRY_MS), usual_ms))
        try:
            return ask()
        finally:
            connection.set_timeout(usual_ms)

    def _from_any_broker(self, ask: Callable[[Connection], Any], deadline: Deadline) -> Any:
        """Ask known brokers, then the bootstrap servers, until one answers or time is up.

        Each gets its share of the time: one that is silent does not take that of the others.
        """
        failed = FailedTries()
        while True:
            addresses = list(self._known_addresses())
            for tried, (host, port) in enumerate(addresses):
                if deadline.passed and tried >= _LAST_TRIES:
                    break
                share = Deadline(
                    max(deadline.left_ms / (len(addresses) - tried), _LAST_TRY_MS), self.settings
                )
                try:
                    connection = self.connection(host, port, share.left_ms)
                    try:
                        return self._within(share.left_ms, connection, partial(ask, connection))
                    except ConnectionLost as lost:
                        raise connection.explain(lost) from None
                except (DeniedError, InvalidError):
                    raise
                except KeyrangeError as failure:
                    failed.add(failure)
            failed.end_round(deadline, self._bootstrap_text())
            deadline.pause()

    def _known_addresses(self) -> Iterable[tuple[str, int]]:
        """Open connections first, then some brokers in random order, then the bootstrap servers,
        then the other brokers."""
        usable = [
            (host, port)
            for (host, port, ahead), each in self._connections.items()
            if not ahead and each.usable
        ]
        brokers = [(broker.host, broker.port) for broker in self._brokers.values()]
        random.shuffle(brokers)
        brokers[_BEFORE_BOOTSTRAP:_BEFORE_BOOTSTRAP] = self.settings.bootstrap_servers
        return dict.fromkeys([*usable, *brokers])

    def _bootstrap_text(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.settings.bootstrap_servers)


def _way(settings: ClientSettings) -> Hashable:
    """Addresses and how connections are secured: with another password it is a first contact."""
    secured = (getattr(settings, each.name) for each in fields(SecuritySettings))
    return (settings.bootstrap_servers, *secured)


def _ask_metadata(connection: Connection, names: list[str] | None) -> Any:
    # A broker that is too old for the executors is refused here, where a query starts.
    connection.fetch_version()
    return connection.call(protocol.metadata(names))
