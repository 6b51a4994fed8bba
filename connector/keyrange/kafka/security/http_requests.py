"""Requests to web servers that are named by options: a token endpoint, a schema registry.

Redirects are not followed: those would carry what logs in to another place. Requests to this
machine's loopback go through no proxy.
"""

from __future__ import annotations

import http.client
import io
import ssl
import time
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from keyrange.options.security_properties import is_loopback


def opener(url: str, tls: Callable[[], ssl.SSLContext]) -> urllib.request.OpenerDirector:
    """Opens requests to `url`; `timeout` of its `open` bounds the connection, and the whole answer
    behind it. `tls` is called where the URL is one of https."""
    address = urlsplit(url)
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    handlers.append(_Handler(context=tls()) if address.scheme == "https" else _Handler())
    if is_loopback(address.hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _InTime(io.RawIOBase):
    """What comes over a socket, all of it by one deadline: urllib's timeout is for each piece."""

    def __init__(self, raw: io.RawIOBase, sock: Any) -> None:
        self._raw, self._sock = raw, sock
        self._by = time.monotonic() + sock.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, memory: Any) -> int | None:
        self._sock.settimeout(max(self._by - time.monotonic(), 0.001))
        return self._raw.readinto(memory)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: Any, *given: Any, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        self.fp = io.BufferedReader(_InTime(self.fp.detach(), sock))


class _Handler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Both schemes, over connections whose answers are `_Response`s."""

    def do_open(self, http_class: Any, req: urllib.request.Request, **given: Any) -> Any:
        def connection(*address: Any, **how: Any) -> Any:
            made = http_class(*address, **how)
            made.response_class = _Response
            return made

        return super().do_open(connection, req, **given)
