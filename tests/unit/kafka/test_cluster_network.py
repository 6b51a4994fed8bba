"""A cluster whose names, brokers and versions are not what a client expects; a cluster that is
large; and a client that is interrupted while it waits."""

from __future__ import annotations

import json
import os
import pickle  # noqa: TID251  as Spark does with tasks
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brokers.loopback_broker import FETCH, LIST_OFFSETS, METADATA, LoopbackCluster, loopback_cluster
from brokers.shared_readers import Shared, flat
from keyrange.errors import KeyrangeError, UnavailableError, error
from keyrange.kafka import cluster as cluster_module
from keyrange.kafka import socket_opening
from keyrange.kafka.cluster import FIRST_CONTACT_MS, Cluster
from keyrange.kafka.cluster_view import Broker
from keyrange.kafka.fetching.fetch import ReadSettings, SplitReader
from keyrange.model.checkpoint import read_checkpoint
from keyrange.model.offsets import LATEST
from keyrange.options.kafka_properties import ClientSettings, Secret
from keyrange.ranges.sharing.shared_reader import RangeReader
from keyrange.wire.chunk_decoder import DecodeSettings
from queries.scripted import EARLIEST_START, GIVEN, planned, session

# Half of what a client waits for an answer: only who does not wait is back by then, however busy
# the machine is.
RETURNS_WITHIN_S = 30.0


@pytest.fixture
def broker() -> Iterator[LoopbackCluster]:
    with loopback_cluster() as made:
        yield made


def client(brokers: LoopbackCluster, *more: tuple[str, int], **settings: Any) -> Cluster:
    return Cluster(ClientSettings(bootstrap_servers=(*more, *brokers.servers), **settings))


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.mark.ordinary
def test_one_bootstrap_server_of_three_is_dead_and_one_is_silent(broker: LoopbackCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dead = ("127.0.0.1", closed_port())
        cluster = client(broker, dead, silent.getsockname())
        began = time.monotonic()
        assert cluster.describe(["t"]).topics.keys() == {"t"}
        assert time.monotonic() - began < RETURNS_WITHIN_S
        cluster.close()


def test_what_the_last_try_had_no_time_to_find_again_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up_once_and_fall_silent() -> None:
            connection, _ = listener.accept()
            # What is closed with bytes that nobody took is reset.
            connection.recv(1_000)
            connection.close()

        answering = threading.Thread(target=hang_up_once_and_fall_silent)
        answering.start()
        cluster = Cluster(
            ClientSettings(bootstrap_servers=(listener.getsockname(),), default_api_timeout_ms=500)
        )
        with pytest.raises(KeyrangeError) as failure:
            cluster.describe(["t"])
        answering.join()
        cluster.close()
    assert failure.value.condition.name == "BROKER_UNREACHABLE"
    assert "closed" in str(failure.value)
    assert "no answer in time" in str(failure.value)


def test_many_hosts_that_are_silent_take_no_more_than_the_time(
    broker: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata may name any number of them."""
    cluster = client(broker, retry_backoff_ms=1, retry_backoff_max_ms=1)
    cluster._brokers = {n: Broker(n, "h" * 1_000, n) for n in range(1, 501)}
    tried: list[tuple[str, int]] = []

    def connection(host: str, port: int, timeout_ms: float) -> Any:
        tried.append((host, port))
        time.sleep(timeout_ms / 1_000)
        raise error("BROKER_UNREACHABLE", "no answer in time", broker=f"{host}:{port}")

    monkeypatch.setattr(cluster, "connection", connection)
    began = time.monotonic()
    with pytest.raises(UnavailableError) as failure:
        cluster.describe(["t"], 300)
    cluster.close()
    # A hundred milliseconds each. The bootstrap servers are asked behind the first ones.
    assert len(tried) < 20
    assert time.monotonic() - began < RETURNS_WITHIN_S
    assert set(broker.servers) <= set(tried[:5])
    assert len(str(failure.value)) < 6_000


def test_what_a_login_needs_before_a_broker_is_named(broker: LoopbackCluster) -> None:
    """The brokers are there: to look at their addresses would help nobody."""
    cluster = client(
        broker,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        oauth_token_endpoint_url=f"http://127.0.0.1:{closed_port()}/token",
        oauth_client_id=Secret("literal:reader"),
        oauth_client_secret=Secret("literal:hunter2"),
        default_api_timeout_ms=500,
    )
    with pytest.raises(UnavailableError, match=r"^\[TOKEN_ENDPOINT_UNREACHABLE\]") as failure:
        cluster.describe(["t"])
    cluster.close()
    assert "check kafka.sasl.oauthbearer.token.endpoint.url" in str(failure.value)
    assert "hunter2" not in str(failure.value)


def test_a_last_try_without_time_does_not_hide_what_a_login_needs(
    broker: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = client(broker, default_api_timeout_ms=300)
    tries = iter(["TOKEN_ENDPOINT_UNREACHABLE"])

    def connection(*_: Any) -> Any:
        name = next(tries, "")
        if not name:
            time.sleep(0.5)
        raise error(name or "BROKER_UNREACHABLE", "no answer")

    monkeypatch.setattr(cluster, "connection", connection)
    with pytest.raises(UnavailableError, match=r"^\[TOKEN_ENDPOINT_UNREACHABLE\]"):
        cluster.describe(["t"])
    cluster.close()


def test_names_that_are_all_wrong_are_named() -> None:
    """The bootstrap address answers, and advertises what cannot be reached from here."""
    with loopback_cluster(2, partitions=2) as brokers:
        port = closed_port()
        brokers.advertised = {0: ("127.0.0.1", port), 1: ("no-such-broker.invalid", 9092)}
        cluster = client(brokers, default_api_timeout_ms=500)
        view = cluster.describe(["t"])
        with pytest.raises(KeyrangeError) as failure:
            cluster.list_offsets(view, dict.fromkeys(view.partitions(), LATEST))
        cluster.close()
    assert failure.value.condition.name == "BROKER_UNREACHABLE"
    assert f"127.0.0.1:{port}" in str(failure.value)
    assert "no-such-broker.invalid:9092" in str(failure.value)
    assert "advertised listeners" in str(failure.value)


def test_a_topic_is_missed_from_the_first_answer_on(
    broker: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers that were away for a while, and one of them does not know the topic at first."""
    read, missed = cluster_module.read_metadata, [["t"]]

    def slow(*answer: Any) -> Any:
        view, _, unready = read(*answer)
        if missed:
            time.sleep(0.3)
        return view, missed.pop() if missed else [], unready

    monkeypatch.setattr(cluster_module, "read_metadata", slow)
    monkeypatch.setattr(cluster_module, "_MISSING_TOPIC_MS", 200)
    cluster = client(broker)
    assert cluster.describe(["t"]).topics.keys() == {"t"}
    assert missed == []
    cluster.close()


def test_a_topic_that_is_gone_takes_no_pause_from_one_without_a_leader(
    broker: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers are asked again and again for seconds, and not as often as they can answer."""
    read, asked = cluster_module.read_metadata, []

    def some_of_it(*answer: Any) -> Any:
        asked.append(answer)
        return read(*answer)[0], ["gone"], ["t-0"]

    monkeypatch.setattr(cluster_module, "read_metadata", some_of_it)
    monkeypatch.setattr(cluster_module, "_MISSING_TOPIC_MS", 1)
    cluster = client(broker, retry_backoff_ms=100, retry_backoff_max_ms=100)
    with pytest.raises(KeyrangeError, match="partitions have no leader: t-0"):
        cluster.describe(["t", "gone"], 500, may_miss=["gone"])
    cluster.close()
    assert len(asked) < 12


def test_a_broker_that_has_moved_to_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is looked up for each connection: nothing is kept of an old answer."""
    places: list[tuple[str, int]] = []

    def lookup(host: str, port: int, *_: Any) -> list[Any]:
        assert (host, port) == ("broker.example", 9092)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]

    monkeypatch.setattr(socket_opening.socket, "getaddrinfo", lookup)
    settings = ClientSettings(bootstrap_servers=(("broker.example", 9092),))
    cluster = Cluster(settings)
    with loopback_cluster() as before:
        before.advertised[0] = ("broker.example", 9092)
        places[:] = before.servers
        view = cluster.describe(["t"])
    with loopback_cluster(latest=77) as after:
        after.advertised[0] = ("broker.example", 9092)
        places[:] = after.servers
        found = cluster.list_offsets(view, dict.fromkeys(view.partitions(), LATEST))
        assert list(found.values()) == [(77, 0)]
    cluster.close()


@pytest.mark.parametrize(
    ("key", "versions", "named"),
    [
        (FETCH, (0, 10), "versions 0 to 10 of Fetch, keyrange versions 11 to 13"),
        (FETCH, (14, 20), "versions 14 to 20 of Fetch, keyrange versions 11 to 13"),
        (FETCH, None, "speaks no Fetch, keyrange versions 11 to 13"),
        (METADATA, (0, 6), "versions 0 to 6 of Metadata, keyrange versions 7 to 12"),
        (LIST_OFFSETS, (0, 3), "versions 0 to 3 of ListOffsets, keyrange versions 4 to 7"),
        (LIST_OFFSETS, None, "speaks no ListOffsets, keyrange versions 4 to 7"),
    ],
)
def test_a_broker_of_another_age_is_refused_at_the_start(
    broker: LoopbackCluster, key: int, versions: tuple[int, int] | None, named: str
) -> None:
    """Before anything is planned, with what it speaks and what is needed."""
    broker.versions.pop(key)
    if versions is not None:
        broker.versions[key] = versions
    cluster = client(broker)
    began = time.monotonic()
    with pytest.raises(KeyrangeError, match="UNSUPPORTED_BROKER") as failure:
        planned(session(cluster, **EARLIEST_START))
    assert time.monotonic() - began < RETURNS_WITHIN_S
    assert named in str(failure.value)
    assert "Kafka 2.3" in str(failure.value)
    cluster.close()


@pytest.mark.ordinary
def test_ten_thousand_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a batch of them costs, in questions, connections and bytes."""
    # No broker is passed by because the machine is busy.
    monkeypatch.setattr(cluster_module, "FIRST_CONTACT_MS", 60_000)
    with loopback_cluster(3, partitions=10_000) as brokers:
        cluster = client(brokers)
        run = session(cluster, {**GIVEN, **EARLIEST_START})
        end = planned(run)
        questions = Counter(node for node, key, _ in brokers.asked if key == LIST_OFFSETS)
        tasks: Any = run.plan(run.initial(), read_checkpoint(end))
        cluster.close()

    # To each leader: where partitions begin, and where they end.
    assert questions == {0: 2, 1: 2, 2: 2}
    assert brokers.connections <= 4
    assert len(brokers.requests(METADATA)) <= 2
    # Where each partition begins is in it, beside its end.
    assert len(json.dumps(end)) < 400_000
    assert sum(len(task.splits) for task in tasks) == 10_000
    sizes = [len(pickle.dumps(task)) for task in tasks]
    assert sum(sizes) < 2_000_000
    assert max(sizes) < 2_000_000 / len(tasks) * 4 + 20_000


def silent_fetches(node: int, key: int, frame: bytes) -> bytes:
    return b"" if key == FETCH else frame


def test_an_interrupt_while_waiting_for_an_answer(broker: LoopbackCluster, tmp_path: Path) -> None:
    """As `query.stop()` and Ctrl-C do. The shared files of the partition go with their reader."""
    broker.spoil = silent_fetches
    shared = Shared(tmp_path, readers=1)
    cluster = client(broker)
    reader = SplitReader(
        cluster, cluster.describe(["t"]), ReadSettings(DecodeSettings(), True, 60_000)
    )
    before = threading.active_count() - broker.connections
    interrupted_at = [0.0]

    def interrupt() -> None:
        while not broker.requests(FETCH):
            time.sleep(0.01)
        time.sleep(0.1)
        interrupted_at[0] = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        list(RangeReader(reader, shared.directory, shared.splits[0]).read())
    assert time.monotonic() - interrupted_at[0] < RETURNS_WITHIN_S
    interrupter.join()
    cluster.close()
    assert shared.left() == []
    until = time.monotonic() + 60
    # The brokers see all connections closed, and their threads end.
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_a_terminated_reader_lets_go_of_all_that_others_wait_for(
    broker: LoopbackCluster, tmp_path: Path
) -> None:
    """SIGTERM, as a worker of Spark's gets it, while it holds the end of what it shares."""
    broker.spoil = silent_fetches
    shared = Shared(tmp_path, readers=2)
    owner = shared.directory
    pid = os.fork()
    if not pid:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            cluster = client(broker)
            how = ReadSettings(DecodeSettings(), True, 60_000)
            reader = SplitReader(cluster, cluster.describe(["t"]), how)
            list(RangeReader(reader, owner, shared.splits[0]).read())
        finally:
            os._exit(1)
    until = time.monotonic() + 60
    while not broker.requests(FETCH) and time.monotonic() < until:
        time.sleep(0.01)
    began = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    assert time.monotonic() - began < RETURNS_WITHIN_S
    assert flat(shared.read(1)) == shared.expected(1)
    assert time.monotonic() - began < RETURNS_WITHIN_S


def test_a_name_that_no_topic_can_have_is_asked_of_no_broker(broker: LoopbackCluster) -> None:
    """Brokers would answer with INVALID_TOPIC_EXCEPTION, as if asking again might help."""
    cluster = client(broker)
    with pytest.raises(KeyrangeError) as failure:
        cluster.describe(["t", "a b", "x" * 250])
    assert failure.value.condition.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert "'a b' cannot be a topic: Kafka allows 1 to 249 characters" in failure.value.message
    assert "a name of 250 characters that begins 'xxx" in failure.value.message
    assert broker.requests(METADATA) == []
    cluster.close()


def test_who_has_had_an_answer_waits_longer_with_all_its_clients() -> None:
    known = ClientSettings(bootstrap_servers=(("known", 9),))
    others = [
        replace(known, bootstrap_servers=(("other", 9),)),
        replace(known, security_protocol="SSL"),
    ]
    first = Cluster(known)
    assert first.deadline(None).left_ms <= FIRST_CONTACT_MS
    first.has_answered()
    for each in (first, Cluster(replace(known, client_id="another"))):
        assert each.deadline(None).left_ms > FIRST_CONTACT_MS
    for other in others:
        assert Cluster(other).deadline(None).left_ms <= FIRST_CONTACT_MS
