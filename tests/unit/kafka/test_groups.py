"""Questions to a group's coordinator and to leaders, against scripted brokers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import Broker, ClusterView, Leader, Topic
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.groups import commit_group_offsets, committed_offsets, epoch_ends
from keyrange.kafka.messages.protocol import Code
from keyrange.kafka.retry_deadline import Deadline
from keyrange.model.offsets import TopicPartition
from keyrange.options.kafka_properties import ClientSettings

NOT_COORDINATOR, LOADING, NOT_AVAILABLE = 16, 14, 15
PLACES = [TopicPartition("t", 0), TopicPartition("t", 1)]
QUICK = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=1)


class ScriptedCluster:
    """Says where coordinators are, and answers them with what a test wrote down.

    An exception in a script is raised in place of an answer.
    """

    settings = QUICK
    contacted = True

    def __init__(self, coordinators: list[Any], answers: list[Any]) -> None:
        self.coordinators, self.answers = coordinators, answers
        self.asked: list[tuple[str, Any]] = []

    def deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(5_000 if timeout_ms is None else timeout_ms, self.settings)

    def call_any_broker(self, request: Any, by: Deadline) -> Any:
        assert request.name == "FindCoordinatorRequest"
        said = self.coordinators.pop(0)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, int):
            return SimpleNamespace(error_code=said, host="", port=-1)
        return SimpleNamespace(error_code=0, host=said, port=9)

    def call(self, host: str, port: int, request: Any, by: Deadline) -> Any:
        self.asked.append((host, request))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def group_offsets(*given: Any, **named: Any) -> dict[TopicPartition, int]:
    return {place: at for place, (at, _) in committed_offsets(*given, **named).items()}


def scripted(coordinators: list[Any], answers: list[Any]) -> Any:
    return ScriptedCluster(coordinators, answers)


def fetched(
    offsets: dict[int, int], error_code: int = 0, each_code: int = 0, metadata: str | None = ""
) -> Any:
    partitions = [
        SimpleNamespace(
            partition_index=number, committed_offset=at, error_code=each_code, metadata=metadata
        )
        for number, at in offsets.items()
    ]
    return SimpleNamespace(
        error_code=error_code, topics=[SimpleNamespace(name="t", partitions=partitions)]
    )


def taken(codes: dict[int, int]) -> Any:
    partitions = [
        SimpleNamespace(partition_index=number, error_code=code) for number, code in codes.items()
    ]
    return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=partitions)])


def sent(request: Any) -> dict[int, int]:
    return {
        each.partition_index: each.committed_offset
        for topic in request.topics
        for each in topic.partitions
    }


def test_partitions_without_a_commit_are_absent() -> None:
    cluster = scripted(["a"], [fetched({0: 7, 1: -1})])
    assert group_offsets(cluster, "g", PLACES) == {PLACES[0]: 7}


def test_the_text_beside_an_offset_is_written_and_read() -> None:
    cluster = scripted(
        ["a", "a", "a"],
        [taken({0: 0}), fetched({0: 5, 1: -1}, metadata="who"), fetched({0: 5}, metadata=None)],
    )
    commit_group_offsets(cluster, "g", {PLACES[0]: 5}, {}, metadata="who")
    [[one]] = [topic.partitions for topic in cluster.asked[0][1].topics]
    assert one.committed_metadata == "who"
    assert committed_offsets(cluster, "g", PLACES, 5_000) == {PLACES[0]: (5, "who")}
    assert committed_offsets(cluster, "g", PLACES, 5_000) == {PLACES[0]: (5, "")}


def test_nothing_wanted_asks_nobody() -> None:
    cluster = scripted([], [])
    assert group_offsets(cluster, "g", []) == {}
    commit_group_offsets(cluster, "g", {}, {})
    assert cluster.asked == []


@pytest.mark.parametrize("code", [NOT_COORDINATOR, LOADING, NOT_AVAILABLE])
def test_a_coordinator_that_moves_is_looked_up_again(code: int) -> None:
    cluster = scripted([NOT_AVAILABLE, "a", "b"], [taken({0: code, 1: code}), taken({0: 0, 1: 0})])
    commit_group_offsets(cluster, "g", dict.fromkeys(PLACES, 5), {})
    assert [host for host, _ in cluster.asked] == ["a", "b"]

    cluster = scripted(["a", "b"], [fetched({}, error_code=code), fetched({0: 3})])
    assert group_offsets(cluster, "g", PLACES) == {PLACES[0]: 3}


def test_a_lost_connection_is_made_again() -> None:
    unreachable = error("BROKER_UNREACHABLE", "cannot connect")
    cluster = scripted(["a", unreachable, "a"], [ConnectionLost("cut"), taken({0: 0})])
    commit_group_offsets(cluster, "g", {PLACES[0]: 5}, {PLACES[0]: 2})
    [_, (_, request)] = cluster.asked
    [[one]] = [topic.partitions for topic in request.topics]
    assert (one.committed_offset, one.committed_leader_epoch) == (5, 2)


def test_what_was_taken_is_not_sent_again() -> None:
    cluster = scripted(["a", "a"], [taken({0: 0, 1: LOADING}), taken({1: 0})])
    commit_group_offsets(cluster, "g", {PLACES[0]: 5, PLACES[1]: 6}, {})
    assert [sent(request) for _, request in cluster.asked] == [{0: 5, 1: 6}, {1: 6}]


def test_a_topic_that_nobody_knows_is_not_waited_for() -> None:
    """The others are committed, also where one of them has to be sent again."""
    places = [*PLACES, TopicPartition("t", 2)]
    cluster = scripted(["a", "a"], [taken({0: 3, 1: LOADING, 2: 0}), taken({1: 0})])
    assert commit_group_offsets(cluster, "g", dict.fromkeys(places, 5), {}) == {PLACES[0]}
    assert [sent(request) for _, request in cluster.asked] == [{0: 5, 1: 5, 2: 5}, {1: 5}]


@pytest.mark.parametrize(
    ("code", "name", "members"),
    [
        (Code.UNKNOWN_MEMBER_ID, "UNKNOWN_MEMBER_ID", True),
        (Code.ILLEGAL_GENERATION, "ILLEGAL_GENERATION", True),
        (Code.REBALANCE_IN_PROGRESS, "REBALANCE_IN_PROGRESS", True),
        (Code.FENCED_INSTANCE_ID, "FENCED_INSTANCE_ID", True),
        (Code.FENCED_MEMBER_EPOCH, "FENCED_MEMBER_EPOCH", True),
        (Code.STALE_MEMBER_EPOCH, "STALE_MEMBER_EPOCH", True),
        (Code.GROUP_AUTHORIZATION_FAILED, "GROUP_AUTHORIZATION_FAILED", False),
        (Code.GROUP_ID_NOT_FOUND, "GROUP_ID_NOT_FOUND", False),
        (Code.INVALID_GROUP_ID, "INVALID_GROUP_ID", False),
    ],
)
def test_a_refusal_names_kafkas_error_and_the_way_out(code: int, name: str, members: bool) -> None:
    cluster = scripted(["a"], [taken({0: code})])
    with pytest.raises(KeyrangeError) as failure:
        commit_group_offsets(cluster, "billing", {PLACES[0]: 5}, {})
    text = str(failure.value)
    assert text.startswith(f"[GROUP_OFFSETS_REFUSED] group 'billing' refuses offsets with {name}")
    assert ("it has members" in text) is members
    assert "name another group id" in text


def refusals_of(ask: Callable[[Any], Any], coordinators: list[Any], answers: list[Any]) -> str:
    with pytest.raises(KeyrangeError) as failure:
        ask(scripted(coordinators, answers))
    return str(failure.value)


def test_what_may_not_be_done_is_named() -> None:
    def read(cluster: Any) -> Any:
        return group_offsets(cluster, "g", PLACES)

    def commit(cluster: Any) -> Any:
        return commit_group_offsets(cluster, "g", {PLACES[0]: 1}, {})

    group, topic = Code.GROUP_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED
    denied = "[AUTHORIZATION_FAILED] not allowed to read"
    assert refusals_of(read, [group], []).startswith(f"{denied} group 'g'")
    assert refusals_of(read, ["a"], [fetched({}, group)]).startswith(f"{denied} group 'g'")
    assert refusals_of(read, ["a"], [fetched({0: 1}, 0, topic)]).startswith(f"{denied} topic t")
    assert refusals_of(commit, ["a"], [taken({0: topic})]).startswith(f"{denied} topic t")
    assert refusals_of(commit, [group], []).startswith("[GROUP_OFFSETS_REFUSED]")
    assert refusals_of(commit, ["a"], [taken({0: 28})]) == (
        "[BROKER_ERROR] a commit to group 'g' failed with INVALID_COMMIT_OFFSET_SIZE. To mend it: "
        "look the named Kafka error up; the broker's log says more."
    )


def test_time_runs_out() -> None:
    """The error says what was heard last; no broker at all is said as such."""
    with pytest.raises(KeyrangeError) as failure:
        group_offsets(scripted([LOADING] * 9_999, []), "g", PLACES, timeout_ms=5)
    assert str(failure.value).startswith(
        "[GROUP_COORDINATOR_UNAVAILABLE] the coordinator of group 'g' was asked in vain: "
        "COORDINATOR_LOAD_IN_PROGRESS"
    )
    silent = scripted([error("BROKER_UNREACHABLE", "no broker answered: x")] * 9_999, [])
    with pytest.raises(KeyrangeError) as failure:
        group_offsets(silent, "g", PLACES, timeout_ms=5)
    assert str(failure.value).startswith("[BROKER_UNREACHABLE] no broker answered: x")


class Leaders(Cluster):
    """Two leaders that answer OffsetForLeaderEpoch; notes who is asked and who answers, in order.

    `replies` holds the error codes of the next answers, by partition.
    """

    def __init__(self, replies: dict[int, list[int]]) -> None:
        super().__init__(QUICK)
        self.contacted = True
        self.replies, self.log = replies, list[str]()
        self.requests: list[Any] = []
        self.epoch = 4

    def deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(5_000, self.settings)

    def describe(self, topics: Any, *_: Any, **__: Any) -> ClusterView:
        brokers = {node: Broker(node, f"b{node}", 9) for node in (0, 1)}
        leaders = {node: Leader(node, self.epoch) for node in (0, 1)}
        self.epoch += 1
        return ClusterView("", brokers, {"t": Topic("", leaders)})

    def connection(self, host: str, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(
            ask=lambda request: self._ask(host, request),
            answer=lambda by: self._answer(int(host[1:])),
        )

    def _ask(self, host: str, request: Any) -> None:
        self.log.append(f"ask {host}")
        self.requests.append(request)

    def _answer(self, number: int) -> Any:
        self.log.append(f"answer b{number}")
        code = self.replies[number].pop(0)
        one = SimpleNamespace(error_code=code, partition=number, leader_epoch=3, end_offset=40)
        return SimpleNamespace(topics=[SimpleNamespace(topic="t", partitions=[one])])


def test_all_leaders_are_asked_before_an_answer_is_taken() -> None:
    cluster: Any = Leaders({0: [0], 1: [0]})
    found = epoch_ends(cluster, cluster.describe([]), dict.fromkeys(PLACES, 3))
    assert found == dict.fromkeys(PLACES, (3, 40))
    assert cluster.log == ["ask b0", "ask b1", "answer b0", "answer b1"]


def test_a_leader_that_was_replaced_is_asked_again_with_its_new_epoch() -> None:
    fenced = 74
    cluster: Any = Leaders({0: [0], 1: [fenced, 0]})
    found = epoch_ends(cluster, cluster.describe([]), dict.fromkeys(PLACES, 3))
    assert found == dict.fromkeys(PLACES, (3, 40))
    assert cluster.log[4:] == ["ask b1", "answer b1"]
    present = [
        [one.current_leader_epoch for topic in request.topics for one in topic.partitions]
        for request in cluster.requests
    ]
    assert present == [[4], [4], [5]]


def test_epochs_of_a_topic_that_may_not_be_read() -> None:
    cluster: Any = Leaders({0: [Code.TOPIC_AUTHORIZATION_FAILED], 1: [0]})
    with pytest.raises(KeyrangeError, match="not allowed to read topic t"):
        epoch_ends(cluster, cluster.describe([]), dict.fromkeys(PLACES, 3))
