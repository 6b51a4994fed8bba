"""`keyrange report --serve`: who is answered, what is new, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from brokers.real_broker import wait_until
from keyrange.cli.http_server import ADDRESS, LocalServer, hosts_of
from keyrange.cli.report.report_inputs import Collector
from keyrange.cli.report.server import Press, serve_report
from keyrange.errors import KeyrangeError, error
from keyrange.report.page_parts import Source, Sources
from samples.report_samples import small_checkpoint, sources

LIBRARY = "window.Plotly = {};"


class Told:
    """Stands for a collector: says what it is told, or fails."""

    def __init__(self) -> None:
        self.sources: Sources = sources()
        self.failure: Exception | None = None

    def collect(self) -> Sources:
        if self.failure is not None:
            raise self.failure
        return self.sources


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def press(told: Told) -> Press:
    return Press(cast(Collector, told), LIBRARY, 1_000)


@pytest.fixture
def server(press: Press) -> Iterator[LocalServer]:
    with LocalServer(0, press.answer) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join(120)


def ask(
    server: LocalServer, path: str = "/", host: str | None = None, method: str = "GET"
) -> tuple[int, Any, bytes]:
    connection = http.client.HTTPConnection(ADDRESS, server.server_port, timeout=120)
    named = host if host is not None else f"{ADDRESS}:{server.server_port}"
    connection.putrequest(method, path, skip_host=True)
    if named:
        connection.putheader("Host", named)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read()
    connection.close()
    return found


def test_the_page_is_served_with_what_guards_it(server: LocalServer) -> None:
    status, headers, body = ask(server)
    assert status == 200
    assert body.startswith(b"<!doctype html>")
    assert b"connect-src 'self'" in body
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Server"].strip() == "keyrange"
    assert server.server_address[0] == "127.0.0.1"
    status, headers, body = ask(server, method="HEAD")
    assert (status, body) == (200, b"")


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:{port}", "127.0.0.1:1", "127.0.0.1.evil:{port}"]
)
def test_who_names_it_otherwise_is_refused(server: LocalServer, host: str) -> None:
    """As a page of another site would, whose name was made to point here."""
    for path in ("/", "/report.json"):
        status, _, body = ask(server, path, host.format(port=server.server_port))
        assert (status, body) == (403, b"not a name of this server\n")


def test_localhost_is_its_name_too(server: LocalServer) -> None:
    assert ask(server, host=f"LocalHost:{server.server_port}")[0] == 200


def test_other_paths_and_methods_are_refused(server: LocalServer) -> None:
    assert ask(server, "/../etc/passwd")[0] == 404
    assert ask(server, "/", method="POST")[0] == 413
    assert ask(server, "/", method="DELETE")[0] == 501
    assert ask(server, "http://[")[0] == 400


def test_who_knows_the_version_is_told_nothing_else(
    server: LocalServer, press: Press, told: Told
) -> None:
    first = json.loads(ask(server, "/report.json")[2])
    assert {"version", "stale", "sections", "pictures", "at"} <= first.keys()
    known = json.loads(ask(server, f"/report.json?known={first['version']}")[2])
    assert known == {"version": first["version"], "stale": ""}
    told.sources = replace(told.sources, members=Source(missing="--other"))
    press.print_anew()
    second = json.loads(ask(server, f"/report.json?known={first['version']}")[2])
    assert second["version"] != first["version"]
    assert "--other" in json.dumps(second["sections"])


def test_a_failed_refresh_keeps_the_last_page_and_says_why_and_since_when(
    press: Press, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    before = press.edition
    told.failure = error("INVALID_CHECKPOINT_PATH", "it is <gone>")
    press.print_anew()
    first = press.edition.stale
    assert first.startswith("Not made anew since 2")
    assert "[INVALID_CHECKPOINT_PATH] it is <gone>" in first
    assert first.endswith("Shown is what was known at 2026-05-28 20:26:40 UTC.")
    assert (press.edition.version, press.edition.content) == (before.version, before.content)
    told.failure = RuntimeError("something else")
    press.print_anew()
    assert press.edition.stale == first
    assert len(capsys.readouterr().err.splitlines()) == 1
    told.failure = None
    press.print_anew()
    assert press.edition.stale == ""


def test_what_the_first_report_is_refused_with_is_raised(told: Told) -> None:
    told.failure = error("INVALID_CHECKPOINT_PATH", "there is none")
    with pytest.raises(KeyrangeError, match="there is none"):
        serve_report(cast(Collector, told), LIBRARY, 0, 1_000)


def test_a_port_that_is_taken_is_told(server: LocalServer, told: Told) -> None:
    with pytest.raises(KeyrangeError, match=rf"ADDRESS_NOT_SERVED.*--port {server.server_port} "):
        serve_report(cast(Collector, told), LIBRARY, server.server_port, 1_000)


def test_ctrl_c_ends_it_without_a_traceback(tmp_path: Path) -> None:
    checkpoint = str(small_checkpoint(tmp_path))
    program = f"""
import sys
from keyrange.cli.report import commands as report
from keyrange.cli import (main)
report.load_library = lambda: {LIBRARY!r}
sys.argv = ["keyrange", "report", {checkpoint!r}, "--serve", "--every", "100ms"]
main.main()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        # A shell starts what runs in the background with Ctrl-C switched off.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert line.startswith(f"http://{ADDRESS}:")
        port = int(line.rpartition(":")[2].split("/")[0])
        connection = http.client.HTTPConnection(ADDRESS, port, timeout=120)
        connection.request("GET", "/report.json")
        assert json.loads(connection.getresponse().read())["sections"]
        connection.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, b"", b"")


def test_a_browser_that_leaves_is_not_said(
    server: LocalServer, capfd: pytest.CaptureFixture[str]
) -> None:
    before = threading.active_count()
    connection = socket.create_connection((ADDRESS, server.server_port), timeout=120)
    connection.sendall(b"GET / HT")
    # Closed with a reset, as by a browser that is killed.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    assert ask(server)[0] == 200
    wait_until(lambda: threading.active_count() == before)
    assert capfd.readouterr().err == ""


def test_what_fails_otherwise_is_a_line(
    server: LocalServer,
    press: Press,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(press, "html", lambda: 1 // 0)
    with pytest.raises(http.client.RemoteDisconnected):
        ask(server)
    assert capfd.readouterr().err == "a request was not answered: ZeroDivisionError\n"


def test_the_port_of_http_has_names_without_it() -> None:
    """Browsers leave it out."""
    assert hosts_of(80) == {"127.0.0.1", "localhost", "127.0.0.1:80", "localhost:80"}
    assert hosts_of(8800) == {"127.0.0.1:8800", "localhost:8800"}
