"""Secrets of options, on their way through the planning process, the binding service and a member:
in no log record, no error, no traceback and no file that is left."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from brokers.logins import OAUTH, PLAIN, parsed
from brokers.token_endpoint import token_endpoint
from keyrange.errors import KeyrangeError
from keyrange.kafka.security import sasl_handshake
from keyrange.members.binding.caller import Caller, greet
from keyrange.members.binding.service import BindingService
from keyrange.members.executor import executor_process
from keyrange.members.executor_names import NameSettings
from keyrange.members.launch import member_directory
from keyrange.members.model.late_binding import PinRule
from keyrange.members.status import MemberSetup, to_json
from keyrange.options import SourceOptions, parse_options
from keyrange.options.kafka_properties import PROPERTIES
from keyrange.options.value_parsers import Property
from keyrange.source.stream import KeyRangeStreamReader
from project.unseen import MARK, check_log, log_everything, whole_text


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def secrets_of(prefix: str) -> dict[str, str]:
    """Every secret property at once, as far as they go together."""
    found = {
        f"{prefix}{row.name}": f"{MARK}-{row.name}"
        for row in PROPERTIES.values()
        if row.field and any(word in row.name for word in ("password", "secret"))
    }
    found[f"{prefix}sasl.jaas.config"] = PLAIN + f'username="u" password="{MARK}-jaas";'
    del found[f"{prefix}sasl.password"]
    return found


def client(port: int) -> dict[str, str]:
    return {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "default.api.timeout.ms": "400",
        "request.timeout.ms": "300",
        "socket.connection.setup.timeout.ms": "300",
        **secrets_of(""),
    }


def options(port: int, **more: str) -> SourceOptions:
    kafka = {f"kafka.{name}": value for name, value in client(port).items()}
    registry = {
        "schemaRegistry.url": "https://localhost:1",
        "schemaRegistry.user": f"{MARK}-user",
        "schemaRegistry.password": f"{MARK}-registry",
        "schemaRegistry.ssl.keystore.password": f"{MARK}-store",
    }
    given = {"subscribe": "t", "fetchOffset.numRetries": "1", **registry, **kafka, **more}
    return parse_options(given, "stream")


def serve(listener: socket.socket, answer: bytes) -> None:
    with suppress(OSError):
        while True:
            sock, _ = listener.accept()
            with sock:
                sock.sendall(answer)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    log_everything(caplog)
    yield caplog
    check_log(caplog)


def test_there_are_secrets_to_be_seen() -> None:
    row = next(iter(PROPERTIES.values()))
    assert isinstance(row, Property)
    assert len(secrets_of("")) >= 5
    assert MARK in str(client(1))
    assert MARK not in repr(options(1))


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_the_planning_process(
    said: pytest.LogCaptureFixture, answer: bytes | None, protocol: str
) -> None:
    """Nobody listens, somebody else does, or closes at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if answer is None:
            listener.close()
        else:
            threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
        reader = KeyRangeStreamReader(options(port, **{"kafka.security.protocol": protocol}))
        with pytest.raises(KeyrangeError) as caught:
            reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        reader.stop()
    assert MARK not in str(caught.value)
    assert MARK not in whole_text(caught.value)
    assert MARK not in repr(vars(reader))


@pytest.mark.parametrize(
    "answer",
    [
        (401, b'{"error": "invalid_client"}'),
        (503, b""),
        (200, b"nonsense"),
        (200, b'{"access_token": "no %s"}' % MARK.encode()),
    ],
)
def test_a_token_endpoint(said: pytest.LogCaptureFixture, answer: tuple[int, bytes]) -> None:
    """It refuses, fails, or grants what is no token."""
    login = f'{OAUTH}clientId="u" clientSecret="{MARK}";'
    with token_endpoint() as endpoint:
        endpoint.answer = lambda: answer
        settings = parsed(
            {
                "bootstrap.servers": "127.0.0.1:1",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": login,
                "sasl.oauthbearer.token.endpoint.url": endpoint.url,
            }
        )
        with pytest.raises(KeyrangeError) as caught:
            sasl_handshake.new_client(settings, "127.0.0.1")
    assert MARK not in whole_text(caught.value)


def test_the_binding_service(said: pytest.LogCaptureFixture) -> None:
    service = BindingService("127.0.0.1", 0)
    try:
        secret = service.address.secret
        plan = service.add(["a"], [{"x": 1}], ["a"], 1, PinRule())
        greet(service.address, "a")
        wrong = replace(service.address, secret=b"w" * 32)
        with pytest.raises(KeyrangeError) as caught:
            list(Caller(wrong, plan, 0).portions(lambda: "a"))
        with socket.create_connection((service.address.host, service.address.port)) as sock:
            sock.sendall(b"0" * 32 + b"\nnonsense\n")
            sock.settimeout(5)
            while sock.recv(1000):
                pass
    finally:
        service.close()
    shown = [said.text, str(caught.value), repr(service.address), whole_text(caught.value)]
    for form in (secret.hex(), repr(secret)[2:-1]):
        assert all(form not in each for each in shown)


def test_a_member_process(tmp_path: Path) -> None:
    """Its command line, its environment, its log and its status, while it tries and fails."""
    setup = MemberSetup(
        NameSettings("g", name="g-0"), "g.members", client(closed_port()), run="r", executor="1"
    )
    place = member_directory(setup, tmp_path)
    place.mkdir(parents=True, mode=0o700)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", "keyrange.members.process", str(place)]
    with (tmp_path / "log").open("wb") as log:
        starter = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
        )
        starter.communicate(to_json(setup, executor_process()).encode(), timeout=60)
    deadline = time.monotonic() + 120
    pids: set[int] = set()
    left: list[Path] = []
    while time.monotonic() < deadline and not (pids and len(left) >= 2):
        pids = {pid for pid in running() if str(place) in command_line(pid)}
        left = [path for path in tmp_path.rglob("*") if path.is_file()]
        time.sleep(0.1)
    time.sleep(1)
    try:
        shown = "".join(command_line(pid) + surroundings(pid) for pid in pids)
        left = [path for path in tmp_path.rglob("*") if path.is_file()]
        shown += "".join(path.read_bytes().decode(errors="replace") for path in left)
        assert pids
        assert len(left) >= 2
        assert MARK not in shown
    finally:
        for pid in pids:
            os.kill(pid, 15)


def running() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command_line(pid: int) -> str:
    return of_process(pid, "cmdline")


def surroundings(pid: int) -> str:
    return of_process(pid, "environ")


def of_process(pid: int, what: str) -> str:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes().decode(errors="replace")
    except OSError:
        return ""
