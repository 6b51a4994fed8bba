"""Certificates that a client refuses, and what a person is told of each, in time."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509

from certificates import Identity, issue
from keyrange.errors import DeniedError
from keyrange.kafka.cluster import Cluster
from keyrange.options.kafka_properties import ClientSettings

NAMED_WITHIN_S = 45.0
DAY = datetime.timedelta(days=1)
LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@contextmanager
def tls_server(identity: Identity, home: Path) -> Iterator[int]:
    """A server that shows a certificate to everybody; returns its port."""
    (home / "server.pem").write_text(identity.pem + identity.key_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "server.pem")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with suppress(OSError), context.wrap_socket(sock, server_side=True):
                pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize(
    ("names", "begins", "ends", "said"),
    [
        ([x509.DNSName("broker.example")], -DAY, DAY, "not valid for '127.0.0.1'"),
        ([LOOPBACK], -2 * DAY, -DAY, "has expired; the clock of this machine says 20"),
        ([LOOPBACK], DAY, 2 * DAY, "not yet valid; the clock of this machine says 20"),
    ],
    ids=["host name", "expired", "not yet valid"],
)
def test_a_certificate_that_is_refused(
    tmp_path: Path,
    names: list[x509.GeneralName],
    begins: datetime.timedelta,
    ends: datetime.timedelta,
    said: str,
) -> None:
    root = issue("root", authority=True)
    (tmp_path / "root.pem").write_text(root.pem)
    with tls_server(issue("server", root, False, names, begins, ends), tmp_path) as port:
        cluster = Cluster(
            ClientSettings(
                bootstrap_servers=(("127.0.0.1", port),),
                security_protocol="SSL",
                ssl_truststore_location=str(tmp_path / "root.pem"),
                ssl_truststore_type="PEM",
            )
        )
        began = time.monotonic()
        with pytest.raises(DeniedError) as failure:
            cluster.describe(["t"])
        assert time.monotonic() - began < NAMED_WITHIN_S
    assert failure.value.condition.name == "TLS_FAILED"
    assert said in str(failure.value)
    assert f"127.0.0.1:{port}" in str(failure.value)
