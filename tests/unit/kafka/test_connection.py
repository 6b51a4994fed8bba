"""One deadline for each whole answer: a peer that is silent, and one that sends a byte now and
then, end a request in time; what is large and moves is waited for."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from brokers.loopback_broker import (
    HOST,
    LIST_OFFSETS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    LoopbackCluster,
    loopback_cluster,
)
from faults.tcp_proxy import TcpProxy
from keyrange.errors import KeyrangeError
from keyrange.kafka import socket_opening
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.connection import Connection, ConnectionLost
from keyrange.kafka.messages import protocol
from keyrange.kafka.response_frames import ReceiveBuffer
from keyrange.model.offsets import LATEST
from keyrange.options.kafka_properties import ClientSettings, Secret

# A machine may be busy: that an answer has one deadline is told by how a request fails, and this by
# its end.
SOON_S = 60.0


@pytest.fixture
def broker() -> Iterator[LoopbackCluster]:
    with loopback_cluster() as made:
        yield made


@pytest.fixture
def proxy(broker: LoopbackCluster) -> Iterator[TcpProxy]:
    with TcpProxy(broker.servers[0]) as made:
        yield made


@contextmanager
def in_time(limit_s: float = SOON_S) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < limit_s


def connect(port: int, timeout_ms: int = 10_000, **settings: Any) -> Connection:
    return Connection.connect(HOST, port, ClientSettings(**settings), timeout_ms)


def metadata() -> Any:
    return protocol.metadata(["t"])


class Framed:
    """A peer that sends the beginning of a frame of so many bytes, once it is asked."""

    def __init__(self, count: int) -> None:
        ours, self.sock = socket.socketpair()
        self.connection = Connection(HOST, 1, ClientSettings(request_timeout_ms=300))
        self.connection._sock = ours
        self.connection.send(protocol.api_versions(), 0)
        self.sock.sendall(struct.pack(">ii", count, 1))

    def receive(self, **how: Any) -> Any:
        try:
            return self.connection.receive(ReceiveBuffer(), 100_000_000, **how)
        finally:
            self.sock.close()

    def feed(self, piece_bytes: int, every_s: float) -> None:
        def run() -> None:
            try:
                while True:
                    time.sleep(every_s)
                    self.sock.sendall(bytes(piece_bytes))
            except OSError:
                return

        threading.Thread(target=run, daemon=True).start()


@pytest.mark.parametrize("least_rate", [0, 4096])
def test_a_byte_now_and_then_wins_no_time(least_rate: float) -> None:
    peer = Framed(10_000_000)
    peer.feed(1, 0.02)
    with in_time(), pytest.raises(ConnectionLost, match=r"no answer in time, \d+ bytes of one in"):
        peer.receive(least_rate=least_rate)


@pytest.mark.ordinary
def test_what_is_large_and_moves_is_waited_for() -> None:
    """80 KiB at some 40 KB/s take six times as long as the timeout."""
    peer = Framed(80 * 1024)
    peer.feed(1024, 0.025)
    assert len(peer.receive(least_rate=4096)) == 80 * 1024
    peer = Framed(80 * 1024)
    peer.feed(1024, 0.025)
    with pytest.raises(ConnectionLost, match="no answer in time"):
        peer.receive()


def test_what_has_come_already_is_taken_after_the_deadline(broker: LoopbackCluster) -> None:
    """The caller was at work on something else."""
    connection = connect(broker.ports[0])
    connection.ask(metadata())
    time.sleep(0.3)
    answer = connection.answer(time.monotonic() - 0.2)
    assert [each.name for each in answer.topics] == ["t"]
    connection.close()


@pytest.mark.parametrize("mode", ["trickle", "hang"])
def test_a_request_that_is_answered_too_slowly(proxy: TcpProxy, mode: Any) -> None:
    connection = connect(proxy.port, request_timeout_ms=200)
    proxy.to_client.set(mode, every_ms=50)
    with in_time(), pytest.raises(ConnectionLost, match="no answer in time"):
        connection.call(metadata())
    assert not connection.usable


@pytest.mark.parametrize("mode", ["trickle", "hang"])
def test_a_connection_that_gets_ready_too_slowly(proxy: TcpProxy, mode: Any) -> None:
    proxy.to_client.set(mode, every_ms=50)
    with in_time(), pytest.raises(KeyrangeError, match=r"BROKER_UNREACHABLE.*no answer in time"):
        connect(proxy.port, timeout_ms=300)


def test_a_tls_handshake_that_trickles() -> None:
    """The beginning of a record of TLS, and then a byte now and then."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                try:
                    sock.sendall(b"\x16\x03\x03\x40\x00")
                    while True:
                        sock.sendall(b"\x02")
                        time.sleep(0.05)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        with in_time(), pytest.raises(KeyrangeError, match="TLS handshake was not finished") as e:
            connect(listener.getsockname()[1], timeout_ms=300, security_protocol="SSL")
        assert e.value.condition.name == "BROKER_UNREACHABLE"


def test_the_steps_of_a_login_have_one_deadline(broker: LoopbackCluster) -> None:
    """Each answer is in time for itself."""

    def late(node: int, key: int, frame: bytes) -> bytes:
        time.sleep(0.5 if key in (SASL_HANDSHAKE, SASL_AUTHENTICATE) else 0)
        return frame

    given = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": Secret("literal:u"),
        "sasl_password": Secret("literal:p"),
    }
    connect(broker.ports[0], **given).close()
    broker.spoil = late
    with pytest.raises(KeyrangeError, match=r"BROKER_UNREACHABLE.*no answer in time"):
        connect(broker.ports[0], timeout_ms=700, **given)


def test_a_name_with_an_address_that_is_silent(
    broker: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener whose backlog is full lets nobody in."""
    with socket.create_server((HOST, 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        time.sleep(0.05)
        places = [full.getsockname(), broker.servers[0]]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]
        monkeypatch.setattr(socket_opening.socket, "getaddrinfo", lambda *_: found)
        with in_time():
            connect(1, timeout_ms=2_000).close()
        for each in waiting:
            each.close()


def silent(*nodes: int, key: int) -> Any:
    return lambda node, asked, frame: b"" if node in nodes and asked == key else frame


def test_leaders_that_are_silent_do_not_add_up() -> None:
    with loopback_cluster(4, partitions=4) as brokers:
        cluster = Cluster(ClientSettings(bootstrap_servers=brokers.servers))
        view = cluster.describe(["t"])
        wanted = dict.fromkeys(view.partitions(), LATEST)
        brokers.spoil = silent(0, 1, 2, 3, key=LIST_OFFSETS)
        with in_time(), pytest.raises(KeyrangeError, match=r"BROKER_ERROR.*no answer in time"):
            cluster.list_offsets(view, wanted, timeout_ms=500)
        cluster.close()


def test_a_broker_that_is_silent_does_not_take_the_time_of_the_others() -> None:
    with loopback_cluster(3) as brokers:
        brokers.spoil = silent(0, 1, key=METADATA)
        cluster = Cluster(ClientSettings(bootstrap_servers=brokers.servers))
        with in_time():
            view = cluster.describe(["t"], timeout_ms=1_500)
        assert len(view.brokers) == 3
        cluster.close()
