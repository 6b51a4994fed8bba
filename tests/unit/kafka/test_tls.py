"""Certificates that a client refuses, and what a person is told of each, in time."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from brokers.certificates import Identity, issue
from brokers.serving import server
from keyrange.errors import DeniedError
from keyrange.kafka.cluster import Cluster
from keyrange.options.kafka_properties import ClientSettings

NAMED_WITHIN_S = 45.0
NEW, OLD = ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2
DAY = datetime.timedelta(days=1)
LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@contextmanager
def tls_server(
    identity: Identity,
    home: Path,
    clients: Path | None = None,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> Iterator[int]:
    """A server that shows a certificate to everybody, and wants one of an authority in the file
    `clients`; returns its port."""
    (home / "server.pem").write_text(identity.pem + identity.key_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "server.pem")
    context.maximum_version = version
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)

    def serve(sock: socket.socket) -> None:
        # Closed with something unread, a connection takes along what was said on it.
        with sock.dup() as rest:
            with suppress(OSError), context.wrap_socket(sock, server_side=True):
                pass
            while rest.recv(4096):
                pass

    with server(serve) as port:
        yield port


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


@pytest.mark.parametrize(
    ("version", "issuer", "begins", "ends", "said"),
    [
        # OpenSSL names the reason to a client of TLS 1.2 that has none at all by nothing.
        (NEW, None, -DAY, DAY, "asks for a client certificate: set kafka.ssl.keystore.location"),
        (NEW, "stranger", -DAY, DAY, "does not accept the certificate of kafka.ssl.keystore.*"),
        (OLD, "stranger", -DAY, DAY, "does not accept the certificate of kafka.ssl.keystore.*"),
        (NEW, "root", -2 * DAY, -DAY, "certificate expired"),
        (OLD, "root", -2 * DAY, -DAY, "certificate expired"),
    ],
)
def test_a_client_certificate_that_is_refused(
    tmp_path: Path,
    version: ssl.TLSVersion,
    issuer: str | None,
    begins: datetime.timedelta,
    ends: datetime.timedelta,
    said: str,
) -> None:
    """Since TLS 1.3 the client has shaken hands by then, and learns of it by the next answer."""
    made = {name: issue(name, authority=True) for name in ("root", "stranger")}
    (tmp_path / "root.pem").write_text(made["root"].pem)
    given: dict[str, Any] = {}
    if issuer is not None:
        own = issue("client", made[issuer], False, (LOOPBACK,), begins, ends)
        (tmp_path / "client.pem").write_text(own.pem + own.key_pem())
        given["ssl_keystore_location"] = str(tmp_path / "client.pem")
    server = issue("server", made["root"], False, (LOOPBACK,))
    with tls_server(server, tmp_path, tmp_path / "root.pem", version) as port:
        cluster = Cluster(
            ClientSettings(
                bootstrap_servers=(("127.0.0.1", port),),
                security_protocol="SSL",
                ssl_truststore_location=str(tmp_path / "root.pem"),
                **given,
            )
        )
        with pytest.raises(DeniedError, match=r"^\[TLS_FAILED\]") as failure:
            cluster.describe(["t"])
    assert said in str(failure.value)
    assert f"127.0.0.1:{port}" in str(failure.value)
