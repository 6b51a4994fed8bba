"""A token endpoint on loopback, for the tests of OAUTHBEARER."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, bytes]


@dataclass
class Endpoint:
    """`requests` are (path, headers in lower case, body), in their order."""

    url: str = ""
    requests: list[tuple[str, dict[str, str], str]] = field(default_factory=list)
    answer: Callable[[], Answer] = lambda: (500, b"")

    def grant(self, **document: Any) -> None:
        """Answer with a token document from here on."""
        body = json.dumps(document).encode()
        self.answer = lambda: (200, body)


@contextmanager
def token_endpoint(tls: ssl.SSLContext | None = None) -> Iterator[Endpoint]:
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            endpoint.requests.append((self.path, headers, body))
            status, content = endpoint.answer()
            self.send_response(status)
            if status in (301, 302, 307, 308):
                self.send_header("Location", endpoint.url + "/elsewhere")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme, host = ("https", "localhost") if tls else ("http", "127.0.0.1")
    endpoint.url = f"{scheme}://{host}:{server.server_address[1]}/token"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
