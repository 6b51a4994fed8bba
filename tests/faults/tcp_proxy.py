"""A TCP proxy between a client and a broker that does to connections what networks do.

    with TcpProxy(("127.0.0.1", broker_port)) as proxy:      # clients connect to proxy.address
        proxy.to_client.set("trickle", step_bytes=1, every_ms=100)
        ...
        proxy.mode = "pass"                                  # both ways; what was held back goes on

Each way of a connection (`to_client`, `to_server`) has a mode, which may be set at any time and
holds for connections that are open too:

- `pass`: what comes goes on.
- `hang`: nothing goes on, the end of the connection neither: a peer that is gone without a word.
- `trickle`: `step_bytes` go on every `every_ms`.
- `delay`: what comes goes on `every_ms` later (64 KiB at a time, so it limits the rate too).
- `cut`: `after_bytes` go on, then both sides see a reset.
- `corrupt`: `after_bytes` go on as they are, then one byte has each of its bits turned.

`cut` and `corrupt` count bytes for each connection anew from when the mode was set or the
connection was made, whichever was later. They happen once per connection, and with `times` that
many times in all before the way passes again; `happened` counts them. `refuse` resets new
connections, `cut()` every open one. The proxy listens on loopback alone. A broker has to advertise
the proxy's port, or its clients leave the proxy after the first contact: make the proxy first, and
set `target` when the broker's own port is known.

As a program (`python tcp_proxy.py HOST PORT`) it prints its own port and passes bytes until its
standard input ends: something that a test may stop with SIGSTOP.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import threading
import time
from typing import Final, Literal, Self

Mode = Literal["pass", "hang", "trickle", "delay", "cut", "corrupt"]

_PIECE_BYTES: Final = 1 << 16
_LOOK_S: Final = 0.01
_RESET: Final = struct.pack("ii", 1, 0)


class Way:
    """What happens to bytes in one direction; shared by all connections."""

    def __init__(self) -> None:
        self._mode: Mode = "pass"
        self.after_bytes = 0
        self.step_bytes = 1
        self.every_ms = 100.0
        self.times: int | None = None
        self.happened = 0
        # Counts how often the mode was set.
        self.turn = 0
        self._lock = threading.Lock()

    @property
    def mode(self) -> Mode:
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self.set(mode)

    def set(
        self,
        mode: Mode,
        *,
        after_bytes: int = 0,
        step_bytes: int = 1,
        every_ms: float = 100.0,
        times: int | None = None,
    ) -> None:
        with self._lock:
            self.after_bytes, self.step_bytes = after_bytes, step_bytes
            self.every_ms, self.times = every_ms, times
            self._mode = mode
            self.turn += 1

    def take(self, turn: int) -> bool:
        """Whether a cut or a corruption of this turn may happen now; it is then counted."""
        with self._lock:
            if turn != self.turn or self.times == 0:
                return False
            self.happened += 1
            if self.times is not None:
                self.times -= 1
            return True


class TcpProxy:
    """Passes connections on to `target` (host, port), through the faults of its two ways."""

    def __init__(self, target: tuple[str, int] | None = None) -> None:
        self.target = target
        self.to_client = Way()
        self.to_server = Way()
        self.refuse = False
        # How many connections were ever made.
        self.accepted = 0
        self._open: set[_Pair] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="tcp-proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def open(self) -> int:
        """How many connections are open now."""
        with self._lock:
            return len(self._open)

    @property
    def mode(self) -> Mode:
        return self.to_client.mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self.to_client.mode = self.to_server.mode = mode

    def cut(self) -> None:
        """Reset every open connection, on both sides."""
        with self._lock:
            pairs = list(self._open)
        for pair in pairs:
            pair.reset()

    def close(self) -> None:
        self._closed = True
        # A blocked accept sees a shutdown, not a close.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self.cut()

    def forget(self, pair: _Pair) -> None:
        with self._lock:
            self._open.discard(pair)

    def _serve(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            server = None if self.refuse or self.target is None else _connect(self.target)
            if server is None:
                _reset(client)
                continue
            pair = _Pair(self, client, server)
            with self._lock:
                self._open.add(pair)
            pair.start()


class _Pair:
    """A connection of a client and the one to the server that it is passed on to."""

    def __init__(self, proxy: TcpProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._lock = threading.Lock()
        self._running = 2
        self.ended = False

    def start(self) -> None:
        client, server = self._client, self._server
        for source, sink, way in (
            (client, server, self._proxy.to_server),
            (server, client, self._proxy.to_client),
        ):
            pump = _Pump(self, source, sink, way)
            threading.Thread(target=pump.run, name="tcp-proxy-pump", daemon=True).start()

    def reset(self) -> None:
        """Both sides see a reset. The pumps wake up by the shutdown, and close."""
        self.ended = True
        for sock in (self._client, self._server):
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                sock.shutdown(socket.SHUT_RD)
            except OSError:
                continue

    def left(self) -> None:
        """A pump has ended; the last one closes."""
        with self._lock:
            self._running -= 1
            if self._running:
                return
        self._client.close()
        self._server.close()
        self._proxy.forget(self)


class _Pump:
    """Carries one direction of a connection."""

    def __init__(self, pair: _Pair, source: socket.socket, sink: socket.socket, way: Way) -> None:
        self._pair, self._source, self._sink, self._way = pair, source, sink, way
        self._turn = way.turn
        self._passed = 0
        self._done = False

    def run(self) -> None:
        try:
            while piece := self._source.recv(_PIECE_BYTES):
                self._carry(piece)
            while self._way.mode == "hang" and not self._pair.ended:
                time.sleep(_LOOK_S)
            if not self._pair.ended:
                self._sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._pair.reset()
        finally:
            self._pair.left()

    def _carry(self, piece: bytes) -> None:
        """Send a piece on, in the steps that the mode of the moment allows."""
        way = self._way
        waited = False
        while piece:
            if self._pair.ended:
                raise ConnectionError("cut")
            if self._turn != way.turn:
                self._turn, self._passed, self._done, waited = way.turn, 0, False, False
            if way.mode == "hang":
                time.sleep(_LOOK_S)
                continue
            if way.mode in ("trickle", "delay") and not waited:
                waited = self._wait(way.every_ms / 1000)
                continue
            waited = False
            piece = piece[self._send(piece) :]

    def _wait(self, wait_s: float) -> bool:
        """True after the time; False as soon as the mode is set anew or the connection is cut."""
        until = time.monotonic() + wait_s
        while (left_s := until - time.monotonic()) > 0:
            if self._turn != self._way.turn or self._pair.ended:
                return False
            time.sleep(min(left_s, _LOOK_S))
        return True

    def _send(self, piece: bytes) -> int:
        """Send the beginning of a piece; returns how much of it that was."""
        way, untouched = self._way, self._way.after_bytes - self._passed
        mode = "pass" if self._done else way.mode
        if mode == "trickle":
            piece = piece[: way.step_bytes]
        elif mode in ("cut", "corrupt") and untouched > 0:
            piece = piece[:untouched]
        elif mode in ("cut", "corrupt"):
            self._done = True
            if not way.take(self._turn):
                return 0
            if mode == "cut":
                raise ConnectionError("cut")
            return self._put(bytes([piece[0] ^ 0xFF]))
        return self._put(piece)

    def _put(self, piece: bytes) -> int:
        """As much of a piece as the sink takes. Never blocks for long: a reset has to wake it."""
        _, writable, _ = select.select([], [self._sink], [], _LOOK_S)
        if not writable:
            return 0
        count = self._sink.send(piece, socket.MSG_DONTWAIT)
        self._passed += count
        return count


def _connect(target: tuple[str, int]) -> socket.socket | None:
    try:
        return socket.create_connection(target, 10)
    except OSError:
        return None


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    sock.close()


if __name__ == "__main__":
    with TcpProxy((sys.argv[1], int(sys.argv[2]))) as passing:
        print(passing.port, flush=True)
        sys.stdin.read()
