"""Questions to the leaders of partitions: sent to all of them before an answer is taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster_view import Broker, ClusterView
from keyrange.kafka.connection import Connection, ConnectionLost
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.kafka.retry_deadline import Deadline
from keyrange.options.kafka_properties import ClientSettings

# Two numbers per partition: offset and leader epoch, or the other way round.
Answers = dict[TopicPartition, tuple[int, int]]
Failures = dict[TopicPartition, str]

_UNREACHABLE: Final = "cannot be reached: "
# How long a last try may take, also where its deadline is nearer.
_LAST_TRY_MS: Final = 100


class Asking(Protocol):
    """What a cluster's client is asked for here: `keyrange.kafka.cluster.Cluster`, which imports
    this module."""

    @property
    def settings(self) -> ClientSettings: ...

    @property
    def contacted(self) -> bool: ...

    def deadline(self, timeout_ms: float | None) -> Deadline: ...

    def connection(self, host: str, port: int, timeout_ms: float | None = None) -> Connection: ...

    def describe(self, topics: Collection[str], timeout_ms: float | None = None) -> ClusterView: ...


@dataclass(frozen=True, slots=True)
class LeaderQuestion:
    """What every leader is asked of its partitions.

    `request` makes the message from the view and the leader's part of what is wanted. `read` adds
    the answers to a mapping, and returns what failed in passing with the cause.
    """

    message: tuple[Any, Any, int, int]
    request: Callable[[ClusterView, Mapping[TopicPartition, int]], Any]
    read: Callable[[Any, Answers], Failures]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that is under way to one leader."""

    connection: Connection
    version: int
    wanted: Mapping[TopicPartition, int]


def ask_leaders(
    cluster: Asking,
    view: ClusterView,
    wanted: Mapping[TopicPartition, int],
    question: LeaderQuestion,
    timeout_ms: float | None = None,
) -> Answers:
    """The answers for all partitions of `wanted`.

    What passes by itself is asked again, with new metadata. Raises BROKER_ERROR that names the
    partitions without an answer, BROKER_UNREACHABLE where their leaders cannot be reached.
    """
    deadline = cluster.deadline(timeout_ms)
    # The first contact is judged soon, by who can be reached; who was reached may take his time.
    is_first = timeout_ms is None and not cluster.contacted
    found: Answers = {}
    left = dict(wanted)
    while True:
        failures = _ask_once(cluster, view, left, question, found, deadline, is_first)
        left = {partition: left[partition] for partition in failures}
        if not left:
            return found
        if deadline.passed:
            raise _no_answer(failures)
        deadline.pause()
        view = cluster.describe(sorted({p.topic for p in left}), max(deadline.left_ms, 1))


def _ask_once(
    cluster: Asking,
    view: ClusterView,
    wanted: Mapping[TopicPartition, int],
    question: LeaderQuestion,
    found: Answers,
    deadline: Deadline,
    is_first: bool,
) -> Failures:
    """One round to all leaders; fills `found`, returns what failed in passing and why."""
    failures: Failures = {}
    by_leader: dict[Broker, dict[TopicPartition, int]] = {}
    for partition, value in wanted.items():
        leader = view.leader(partition)
        if leader is None:
            failures[partition] = "no leader"
        else:
            by_leader.setdefault(leader, {})[partition] = value
    asked: list[_Asked] = []
    for leader, group in by_leader.items():
        try:
            connection = cluster.connection(leader.host, leader.port, deadline.left_ms)
            version = connection.ask(question.message, question.request(view, group))
            asked.append(_Asked(connection, version, group))
        except ConnectionLost as lost:
            failures.update(dict.fromkeys(group, str(lost)))
        except KeyrangeError as failure:
            if not failure.retriable:
                raise
            failures.update(dict.fromkeys(group, _UNREACHABLE + failure.message))
    # One deadline for all: leaders that are silent do not add up.
    limit_ms = float(cluster.settings.request_timeout_ms)
    if not is_first:
        limit_ms = min(limit_ms, max(deadline.left_ms, _LAST_TRY_MS))
    by = time.monotonic() + limit_ms / 1000
    for each in asked:
        try:
            answer = each.connection.answer(question.message, each.version, by)
        except ConnectionLost as lost:
            failures.update(dict.fromkeys(each.wanted, str(lost)))
            continue
        except KeyrangeError as failure:
            if not failure.retriable:
                raise
            failures.update(dict.fromkeys(each.wanted, str(failure)))
            continue
        failures.update(question.read(answer, found))
    return failures


def _no_answer(failures: Failures) -> KeyrangeError:
    shown = ", ".join(f"{partition}: {why}" for partition, why in sorted(failures.items())[:10])
    # A cluster that answers at its bootstrap address and names leaders that cannot be reached has
    # the wrong listeners advertised, or a network in between.
    unreachable = all(why.startswith(_UNREACHABLE) for why in failures.values())
    condition = "BROKER_UNREACHABLE" if unreachable else "BROKER_ERROR"
    return error(condition, f"no offsets for {len(failures)} partitions ({shown})")
