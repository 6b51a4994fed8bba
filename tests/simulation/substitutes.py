"""What a simulated process has in the place of Kafka, Delta's engine, Spark's JVM, the system's
sockets and members: by their public names, wherever keyrange has them."""

from __future__ import annotations

import importlib
import pkgutil
import socket
import socketserver
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import keyrange

# What is imported by nobody here, or needs what is not installed everywhere.
_LEFT_OUT = ("keyrange.cli", "keyrange.embedded", "keyrange.observing", "keyrange.report")
_PORTS = iter(range(1, 1 << 62))


@contextmanager
def substituted(others: Mapping[str, Any]) -> Iterator[None]:
    """`others`: what stands for which object, as "module:name", in all modules that have it."""
    before = [(place, vars(place[0])[place[1]]) for name in others for place in _places(name)]
    try:
        for name, other in others.items():
            for module, bound in _places(name):
                setattr(module, bound, other)
        yield
    finally:
        for (module, bound), was in before:
            setattr(module, bound, was)


@cache
def _places(name: str) -> list[tuple[Any, str]]:
    """Each module, and the name there, of an object."""
    _import_all()
    module, _, attribute = name.partition(":")
    own = getattr(importlib.import_module(module), attribute)
    return [
        (each, bound)
        for known, each in sorted(sys.modules.items())
        if known.startswith("keyrange")
        for bound, value in list(vars(each).items())
        if value is own
    ]


@cache
def _import_all() -> None:
    """A module that was imported later would keep what it found for good."""
    for each in pkgutil.walk_packages(keyrange.__path__, "keyrange."):
        if not each.name.startswith(_LEFT_OUT):
            importlib.import_module(each.name)


class InlineThread:
    """Does at once what a thread would do meanwhile."""

    def __init__(self, target: Callable[[], None], **_: Any) -> None:
        self.start = target


class InlineExecutor:
    """Does at once what a pool of threads would do side by side."""

    def __init__(self, *_: Any) -> None: ...

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, function: Callable[..., Any], *given: Any) -> Future[Any]:
        found: Future[Any] = Future()
        found.set_result(function(*given))
        return found

    def map(self, function: Callable[[Any], Any], each: Iterable[Any]) -> list[Any]:
        return list(map(function, each))


class _Pair(socket.socket):
    """One end of a pair, which is asked for what only TCP has."""

    def setsockopt(self, *_: Any) -> None: ...


@contextmanager
def sockets() -> Iterator[None]:
    """Servers of socketserver that are reached within this process, by a pair of sockets for each
    connection; no port is opened."""
    servers: dict[int, Any] = {}

    def bind(server: Any) -> None:
        server.server_address = (server.server_address[0], next(_PORTS))
        servers[server.server_address[1]] = server

    def connect(address: tuple[str, int], **_: Any) -> socket.socket:
        server = servers.get(address[1])
        if server is None:
            raise ConnectionRefusedError(f"nobody listens at {address}")
        ours, theirs = (
            _Pair(each.family, each.type, 0, each.detach()) for each in socket.socketpair()
        )
        server.process_request(theirs, ("here", 1))
        return ours

    def end(server: Any) -> None:
        servers.pop(server.server_address[1], None)
        server.socket.close()

    nothing = lambda *_: None  # noqa: E731
    with ExitStack() as stack:
        own = {"server_bind": bind, "server_activate": nothing, "server_close": end}
        for name, function in own.items():
            stack.enter_context(patch.object(socketserver.TCPServer, name, function))
        for name in ("serve_forever", "shutdown"):
            stack.enter_context(patch.object(socketserver.BaseServer, name, nothing))
        stack.enter_context(patch("socket.create_connection", connect))
        yield
