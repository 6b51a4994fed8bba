"""A listener of another protocol than the options say: what a person is told of it, at once."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.sasl import SaslHandshakeResponse

from brokers.certificates import issue
from brokers.loopback_broker import (
    HOST,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    loopback_cluster,
)
from brokers.serving import answers, server
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.model import security_protocol_hint
from keyrange.options.kafka_properties import ClientSettings, Secret

TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x50"
LOGIN = {
    "sasl_mechanism": "PLAIN",
    "sasl_username": Secret("literal:u"),
    "sasl_password": Secret("literal:p"),
}


def refused(port: int, protocol: str = "PLAINTEXT", **given: Any) -> KeyrangeError:
    """What a first contact fails with."""
    login = LOGIN if protocol.startswith("SASL") else {}
    cluster = Cluster(
        ClientSettings(
            bootstrap_servers=((HOST, port),),
            security_protocol=protocol,
            # As soon as every address was tried.
            default_api_timeout_ms=500,
            **login,
            **given,
        )
    )
    with pytest.raises(KeyrangeError) as failure:
        cluster.describe(["t"])
    cluster.close()
    assert f"{HOST}:{port}" in failure.value.message
    return failure.value


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it answers in HTTP, as a web server"),
        (b"SSH-2.0-server\r\n", "it begins 'SSH-'"),
    ],
)
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_a_server_that_does_not_speak_kafka(answer: bytes, said: str, protocol: str) -> None:
    with server(answers(answer)) as port:
        failure = refused(port, protocol)
    assert failure.condition.name == "NOT_A_BROKER"
    assert f"does not speak Kafka: {said} (address={HOST}:{port})" in failure.message
    assert "name host and port of a broker's listener in kafka.bootstrap.servers" in str(failure)


def test_a_web_server_with_tls(tmp_path: Path) -> None:
    """TLS is agreed on, and then it answers in HTTP."""
    root = issue("root", authority=True)
    identity = issue("server", root, False)
    (tmp_path / "root.pem").write_text(root.pem)
    (tmp_path / "server.pem").write_text(identity.pem + identity.key_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")

    def serve(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) as secured:
            answers(b"HTTP/1.1 400 Bad Request\r\n\r\n")(secured)

    with server(serve) as port:
        failure = refused(
            port,
            "SSL",
            ssl_truststore_location=str(tmp_path / "root.pem"),
            ssl_truststore_type="PEM",
        )
    assert failure.condition.name == "NOT_A_BROKER"


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("PLAINTEXT", "set it to SSL, or with a login to SASL_SSL"),
        ("SASL_PLAINTEXT", "set it to SASL_SSL, or without a login to SSL"),
    ],
)
def test_a_listener_with_tls_for_a_client_without(protocol: str, said: str) -> None:
    with server(answers(TLS_ALERT)) as port:
        alerted = refused(port, protocol)
    with server(answers(b"")) as port:
        closed = refused(port, protocol)
    assert alerted.condition.name == "TLS_FAILED"
    assert f"speaks TLS, and kafka.security.protocol is {protocol}: {said}" in alerted.message
    assert closed.condition.name == "BROKER_UNREACHABLE"
    told = said.replace("set it", "set kafka.security.protocol")
    assert f"a listener with TLS does so: {told}" in closed.message


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("SSL", "set it to PLAINTEXT, or with a login to SASL_PLAINTEXT"),
        ("SASL_SSL", "set it to SASL_PLAINTEXT, or without a login to PLAINTEXT"),
    ],
)
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_listener_without_tls_for_a_client_with(protocol: str, said: str, answer: bytes) -> None:
    """A broker takes the greeting for the length of a huge request, and closes."""
    with server(answers(answer)) as port:
        failure = refused(port, protocol)
    assert failure.condition.name == "TLS_FAILED"
    assert f"kafka.security.protocol is {protocol}: {said}" in failure.message


def test_a_listener_with_sasl_for_a_client_that_does_not_log_in() -> None:
    """It tells its versions to everybody, and closes at the next request."""
    with loopback_cluster() as broker:
        broker.spoil = lambda node, key, frame: None if key == METADATA else frame
        failure = refused(broker.ports[0])
    assert failure.condition.name == "BROKER_UNREACHABLE"
    assert (
        "a listener with SASL does so: set kafka.security.protocol to SASL_PLAINTEXT, with "
        "kafka.sasl.mechanism and credentials" in failure.message
    )


def test_a_listener_without_sasl_for_a_client_that_logs_in() -> None:
    refusal = SaslHandshakeResponse(error_code=34, mechanisms=[])
    body = bytes(refusal.encode(version=1))

    def spoil(node: int, key: int, frame: bytes) -> bytes:
        whole = frame[4:8] + body
        return len(whole).to_bytes(4, "big") + whole if key == SASL_HANDSHAKE else frame

    with loopback_cluster() as broker:
        broker.spoil = spoil
        failure = refused(broker.ports[0], "SASL_PLAINTEXT")
    assert failure.condition.name == "SASL_AUTHENTICATION_FAILED"
    assert (
        "the listener has no SASL, and kafka.security.protocol is SASL_PLAINTEXT: set it to "
        "PLAINTEXT and leave kafka.sasl.* out" in failure.message
    )


def test_a_login_that_is_cut_off_is_no_matter_of_the_protocol() -> None:
    with loopback_cluster() as broker:
        broker.spoil = lambda node, key, frame: None if key == SASL_AUTHENTICATE else frame
        failure = refused(broker.ports[0], "SASL_PLAINTEXT")
    assert "a broker may end a login like that" in failure.message
    assert "security.protocol" not in failure.message


def test_a_server_that_is_silent_is_not_taken_for_one_of_another_protocol() -> None:
    ended = threading.Event()
    with server(lambda sock: bool(ended.wait(60)) and None) as port:
        failure = refused(port)
        ended.set()
    assert failure.condition.name == "BROKER_UNREACHABLE"
    assert "no answer in time; the broker is busy or starting, or what listens" in failure.message
    assert "security.protocol" not in failure.message


def test_a_length_is_not_taken_for_text() -> None:
    assert security_protocol_hint.foreign(b"\x7f\xff\xff\xff") == ""
    assert security_protocol_hint.foreign(b"\x00\x00\x01\x00") == ""
    assert security_protocol_hint.foreign((256 << 20).to_bytes(4, "big")) == ""
