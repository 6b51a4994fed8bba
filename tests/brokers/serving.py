"""Servers on loopback that treat every connection alike."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that treats every connection so, and closes it; yields its port."""
    accepting = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                sock, _ = accepting.accept()
            except OSError:
                return
            with suppress(OSError), sock:
                serve(sock)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield accepting.getsockname()[1]
    finally:
        accepting.shutdown(socket.SHUT_RDWR)
        accepting.close()
        thread.join()


def answers(said: bytes) -> Callable[[socket.socket], None]:
    """Answers anything with the same bytes."""

    def serve(sock: socket.socket) -> None:
        sock.recv(4096)
        sock.sendall(said)

    return serve
