"""A server of HTTP on this machine, for browsers and programs.

Rule of this file: 127.0.0.1, and only to who names it so: a page of another site whose name was
made to point here (DNS rebinding) is refused by its Host header. Another address is served to who
brings a token alone.
"""

from __future__ import annotations

import hmac
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from keyrange.cli.render import note
from keyrange.errors import error

ADDRESS: Final = "127.0.0.1"
HTTP_PORT: Final = 80
_NAMES: Final = (ADDRESS, "localhost")
_BODY_BYTES_MAX: Final = 1 << 20
_IDLE_S: Final = 60.0
_REFUSED_BODY_S: Final = 1.0
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Request:
    """`path` is what was asked for, with its query; `accept` what may be answered with, `body` what
    came with it, None for GET and HEAD."""

    path: str
    accept: str = ""
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    kind: str = "application/json; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


def text_answer(text: str, status: HTTPStatus) -> Answer:
    return Answer(f"{text}\n".encode(errors="replace"), "text/plain; charset=utf-8", status)


class LocalServer(ThreadingHTTPServer):
    """Answers requests by a function, one thread for each connection. `token`: what all but GET of
    the `open_paths` have to bring as their bearer; None for nobody has to."""

    daemon_threads = True

    def __init__(
        self,
        port: int,
        answer: Callable[[Request], Answer],
        address: str = ADDRESS,
        token: str | None = None,
        open_paths: frozenset[str] = frozenset(),
    ) -> None:
        self.answer, self.open_paths = answer, open_paths
        self.bearer = None if token is None else f"Bearer {token}".encode()
        self._connections: set[socket.socket] = set()
        super().__init__((address, port), _Handler)
        # Who has the token may name the server as they like.
        self.hosts = hosts_of(self.server_port) if address == ADDRESS else None

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def shutdown(self) -> None:
        """Ends connections too: the thread of one that a browser keeps would go on answering."""
        super().shutdown()
        for connection in tuple(self._connections):
            # Its thread may have closed it by now.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A browser that leaves is no trouble of ours, and no traceback helps who watches."""
        failure = sys.exception()
        if not isinstance(failure, ConnectionError | TimeoutError):
            note(f"a request was not answered: {type(failure).__name__}")


def hosts_of(port: int) -> frozenset[str]:
    """How this server is named in requests; of the port of all of HTTP browsers say nothing."""
    named = {f"{name}:{port}" for name in _NAMES}
    return frozenset(named | set(_NAMES) if port == HTTP_PORT else named)


def number_in(text: str) -> int | None:
    """A number that a request says, None where it says none. Python reads none of thousands of
    digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def _is_address(path: str) -> bool:
    try:
        urlsplit(path)
    except ValueError:
        return False
    return True


class _Handler(BaseHTTPRequestHandler):
    server: LocalServer
    server_version = "keyrange"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    # An answer is one write.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve(None)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        refused = self._refused(has_body=True)
        length = number_in(self.headers.get("Content-Length", ""))
        if refused is not None:
            self._refuse(refused, min(length or 0, _BODY_BYTES_MAX))
        elif length is None or length > _BODY_BYTES_MAX:
            what = f"a body says its length, of at most {_BODY_BYTES_MAX} bytes"
            self._refuse(text_answer(what, HTTPStatus.REQUEST_ENTITY_TOO_LARGE), 0)
        else:
            self._serve(self.rfile.read(length))

    def _serve(self, body: bytes | None) -> None:
        refused = self._refused(has_body=False) if body is None else None
        if refused is None and not _is_address(self.path):
            refused = text_answer("not the address of anything", HTTPStatus.BAD_REQUEST)
        if refused is not None:
            self._write(refused)
            return
        request = Request(self.path, self.headers.get("Accept", ""), body)
        self._write(self.server.answer(request))

    def _refuse(self, answer: Answer, length: int) -> None:
        """Ends the connection. Its client would see no answer if its body were left unread."""
        self.close_connection = True
        self._write(answer)
        with suppress(OSError):
            self.wfile.flush()
            self.connection.settimeout(_REFUSED_BODY_S)
            self.rfile.read(length)

    def _refused(self, *, has_body: bool) -> Answer | None:
        """Before anything else of a request is looked at."""
        server = self.server
        if server.hosts is not None and self.headers.get("Host", "").lower() not in server.hosts:
            return text_answer("not a name of this server", HTTPStatus.FORBIDDEN)
        if server.bearer is None or (not has_body and self.path in server.open_paths):
            return None
        brought = self.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if hmac.compare_digest(brought, server.bearer):
            return None
        return text_answer("Authorization: Bearer TOKEN is needed", HTTPStatus.UNAUTHORIZED)

    def _write(self, answer: Answer) -> None:
        self.send_response(answer.status)
        headers = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body))}
        for name, value in {**headers, **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """A line for each request would hide what is said."""


@contextmanager
def on_one_core() -> Iterator[None]:
    """Let this thread, and those that it begins, stay on one processor. One of Python's threads
    runs at a time: on several they hand the interpreter over from one processor to the other, and
    a server answered 900 requests in a second in place of 2,500."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    # Servers of one host choose each their own.
    os.sched_setaffinity(0, {sorted(allowed)[os.getpid() % len(allowed)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def serving(
    port: int,
    answer: Callable[[Request], Answer],
    address: str = ADDRESS,
    token: str | None = None,
    open_paths: frozenset[str] = frozenset(),
) -> Iterator[Callable[[], None]]:
    """What is given serves until Ctrl-C. Raises ADDRESS_NOT_SERVED for a port that is taken."""
    try:
        server = LocalServer(port, answer, address, token, open_paths)
    except OSError as failure:
        text = f"--port {port} cannot be served: {failure}"
        raise error("ADDRESS_NOT_SERVED", text) from None
    with server:
        note(f"http://{address}:{server.server_port}/ until Ctrl-C")
        yield lambda: server.serve_forever(poll_interval=0.1)
