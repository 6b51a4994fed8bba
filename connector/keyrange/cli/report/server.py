"""The page of a report, served on this machine and kept up to date.

Rule of this file: 127.0.0.1 and nothing else, and only to who names it so: a page of another site
whose name was made to point here (DNS rebinding) is refused by its Host header.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from keyrange.cli.render import note
from keyrange.cli.report.report_inputs import Collector
from keyrange.cli.values import iso, now
from keyrange.errors import invalid_options
from keyrange.report.html import page, report
from keyrange.text.formats import moment

ADDRESS: Final = "127.0.0.1"
HTTP_PORT: Final = 80
_NAMES: Final = (ADDRESS, "localhost")
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Edition:
    """A report as it was made last. `stale` says why there is no newer one, and since when."""

    version: str
    content: dict[str, Any]
    stale: str = ""


class Press:
    """Makes a report anew, and keeps the last one that could be made."""

    def __init__(self, collector: Collector, library: str, every_ms: int) -> None:
        self._collector = collector
        self._library = library
        self._every_ms = every_ms
        self.edition = self._made()

    def print_anew(self) -> None:
        """Replace the edition. Whatever fails, the last one stays."""
        try:
            self.edition = self._made()
        except Exception as failure:
            if not self.edition.stale:
                since = f"{moment(iso(now()))} UTC"
                text = " ".join(str(failure).split()) or type(failure).__name__
                note(f"not made anew: {text}")
                stale = f"Not made anew since {since}: {text} Shown is what was known at "
                stale += f"{moment(self.edition.content['at'])} UTC."
                self.edition = replace(self.edition, stale=stale)

    def _made(self) -> Edition:
        content = report(self._collector.collect())
        text = json.dumps(content, sort_keys=True)
        return Edition(hashlib.sha256(text.encode()).hexdigest()[:16], content)

    def html(self) -> bytes:
        edition = self.edition
        return page(edition.content, self._library, edition.version, self._every_ms).encode()

    def news(self, known: str) -> bytes:
        """What is new for who knows a version: all of the report, or only that there is none."""
        edition = self.edition
        content = {} if known == edition.version else edition.content
        return json.dumps({"version": edition.version, "stale": edition.stale, **content}).encode()

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self._every_ms / 1000):
            self.print_anew()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, press: Press) -> None:
        self.press = press
        super().__init__((ADDRESS, port), _Handler)
        self.hosts = hosts_of(self.server_port)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A browser that leaves is no trouble of ours, and no traceback helps who watches."""
        failure = sys.exception()
        if not isinstance(failure, ConnectionError):
            note(f"a request was not answered: {type(failure).__name__}")


def hosts_of(port: int) -> frozenset[str]:
    """How this server is named in requests; of the port of all of HTTP browsers say nothing."""
    named = {f"{name}:{port}" for name in _NAMES}
    return frozenset(named | set(_NAMES) if port == HTTP_PORT else named)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "keyrange"
    sys_version = ""

    def do_GET(self) -> None:
        if self.headers.get("Host", "").lower() not in self.server.hosts:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"not a name of this server\n")
            return
        asked = urlsplit(self.path)
        if asked.path == "/":
            self._answer(HTTPStatus.OK, "text/html", self.server.press.html())
        elif asked.path == "/report.json":
            known = parse_qs(asked.query).get("known", [""])[0]
            self._answer(HTTPStatus.OK, "application/json", self.server.press.news(known))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there is / and /report.json\n")

    do_HEAD = do_GET

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in {**headers, **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A line for each request would hide what is said."""


def serve_report(collector: Collector, library: str, port: int, every_ms: int) -> None:
    """Serve until Ctrl-C. Raises what the first report is refused with, and INVALID_OPTIONS for a
    port that is taken."""
    press = Press(collector, library, every_ms)
    try:
        server = _Server(port, press)
    except OSError as failure:
        raise invalid_options([f"--port {port} cannot be served: {failure}"]) from None
    stop = threading.Event()
    threading.Thread(target=press.run, args=(stop,), daemon=True).start()
    note(f"http://{ADDRESS}:{server.server_port}/ until Ctrl-C")
    try:
        server.serve_forever(poll_interval=0.1)
    finally:
        stop.set()
        server.server_close()
