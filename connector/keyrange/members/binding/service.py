"""The side of the planning process: answers tasks that ask what they read."""

from __future__ import annotations

import json
import logging
import secrets
import socket
import socketserver
import threading
import zlib
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from keyrange.members.binding.channel import ASK_BYTES_MAX, BadLine, Channel
from keyrange.members.heirs import Heirs
from keyrange.members.model.late_binding import (
    NO_SLOT,
    Binding,
    Give,
    NoMoreWork,
    PinRule,
    Refuse,
    Standbys,
    Wait,
    WorkUnitCounts,
)
from keyrange.members.model.task_greeting import Address
from keyrange.members.status import now_ms

_log = logging.getLogger(__name__)

# A job may still run again what a batch before this one has planned.
_PLANS_MAX: Final = 64
_CONNECTIONS_MAX: Final = 1024
# Of one address, without a proof that it knows the secret. All executors may be behind one address.
_UNPROVEN_MAX: Final = 256
# Who has connected has so long for its first proven line, and then for each line that follows.
_UNPROVEN_S: Final = 10.0
_SILENCE_S: Final = 30.0


class Connections:
    """The connections of a service. Who has not proven that it knows the secret keeps nobody out:
    where there is no room, the oldest of those is cut off.

    `connections_max` are all connections, `unproven_max` those of one address that have not proven
    themselves. A task proves itself in its first message; who comes only to fill the places
    displaces others of its kind.
    """

    def __init__(self, connections_max: int, unproven_max: int) -> None:
        self._connections_max, self._unproven_max = connections_max, unproven_max
        self._lock = threading.Lock()
        # In the order in which they came, with the address that has not proven itself yet.
        self._places: dict[socket.socket, str | None] = {}

    def take(self, sock: socket.socket, address: str) -> bool:
        """Whether there is a place for one more; `address` is where it comes from."""
        with self._lock:
            unproven = [each for each, where in self._places.items() if where is not None]
            same = [each for each in unproven if self._places[each] == address]
            if len(same) >= self._unproven_max:
                self._cut_off(same[0])
            elif len(self._places) >= self._connections_max:
                if not unproven:
                    return False
                self._cut_off(unproven[0])
            self._places[sock] = address
            return True

    def prove(self, sock: socket.socket) -> None:
        with self._lock:
            if sock in self._places:
                self._places[sock] = None

    def leave(self, sock: socket.socket) -> None:
        """To be called before the socket is closed."""
        with self._lock:
            self._places.pop(sock, None)

    def _cut_off(self, sock: socket.socket) -> None:
        """Its thread sees the end, and closes it."""
        del self._places[sock]
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


@dataclass(slots=True)
class _Plan:
    binding: Binding
    # What the reader of each portion is told, compressed: as objects the plans of a topic with many
    # partitions would take gigabytes.
    documents: tuple[bytes, ...]
    owners: frozenset[str]
    # The number of its batch, as soon as a task has said it.
    batch: int | None = None


class BindingService:
    """Answers on one port for as long as a run lasts. `host` is what tasks are told, and what it
    listens on unless `bind_address` says another. `heirs` know what slots are to copy that is not
    theirs, or not yet."""

    def __init__(self, host: str, port: int, bind_address: str = "", heirs: Heirs | None = None):
        self._heirs = heirs
        self._lock = threading.Lock()
        self._plans: OrderedDict[str, _Plan] = OrderedDict()
        self._slots: set[str] = set()
        self._epoch = 0
        self._holdings: Mapping[str, Any] = {}
        self._secret = secrets.token_bytes(32)
        self._server = _Server((bind_address or host, port), self)
        self._address = Address(host, self._server.server_address[1], self._secret)
        threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="keyrange-binding", daemon=True
        ).start()

    @property
    def address(self) -> Address:
        return self._address

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(
        self,
        owners: Sequence[str],
        documents: Sequence[Mapping[str, Any]],
        present: Collection[str],
        tasks: int,
        rule: PinRule,
        awaited: Collection[str] = (),
        readers: Sequence[str] = (),
        standbys: Standbys = MappingProxyType({}),
    ) -> str:
        """Make a plan known: the slot of each portion, and what its reader is told; returns the
        plan's name. `readers` are the slots that are to read the portions, where these are others.
        A plan without portions stands for a batch that anybody reads."""
        name = secrets.token_hex(8)
        binding = Binding(readers or owners, present, tasks, rule, awaited, owners, standbys)
        plan = _Plan(binding, tuple(map(_packed, documents)), frozenset(owners))
        with self._lock:
            self._plans[name] = plan
            while len(self._plans) > _PLANS_MAX:
                self._plans.popitem(last=False)
        return name

    def tell_ranges(self, epoch: int, holdings: Mapping[str, Any]) -> None:
        """What each slot has by the present assignment: `ranges`, and `since` when."""
        with self._lock:
            self._epoch, self._holdings = epoch, holdings

    def counts(self, plan: str) -> WorkUnitCounts | None:
        """Who read a plan's portions so far; None for a plan that is forgotten."""
        with self._lock:
            found = self._plans.get(plan)
            return found.binding.counts() if found is not None else None

    def heard(self, plan: str) -> tuple[frozenset[str], frozenset[str]]:
        """The slots that are to read a plan's portions, and those whose tasks have asked so far."""
        with self._lock:
            found = self._plans.get(plan)
            return found.binding.heard() if found is not None else (frozenset(), frozenset())

    def slots(self) -> frozenset[str]:
        """The slots that this service was reached from so far."""
        with self._lock:
            return frozenset(self._slots)

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one line. Raises KeyError, TypeError, ValueError for one that says
        nothing."""
        if "hello" in question:
            slot = question["hello"]["slot"]
            self._hear_from(slot)
            return {"welcome": True, "copies": self._has_copies(slot)}
        if "copies" in question:
            slot, done = question["copies"]["slot"], int(question["copies"]["done"])
            return self._heirs.news(slot, done) if self._heirs is not None else {}
        if "ranges" in question:
            with self._lock:
                nothing = {"ranges": {}, "since": ["", self._epoch]}
                found = self._holdings.get(question["ranges"]["slot"], nothing)
                return {"epoch": self._epoch, **found}
        asked = question["ask"]
        # Executors that come while batches are bound say nothing else.
        self._hear_from(asked["slot"])
        with self._lock:
            plan = self._plans.get(asked["plan"])
            if plan is None:
                return {"forgotten": True}
            found = plan.binding.ask(asked["task"], asked["position"], asked["slot"], now_ms())
            plan.batch = int(asked["batch"])
            last = self._last_batch(asked["plan"], asked["slot"], plan.batch)
        answer: dict[str, Any]
        match found:
            case Give(portion):
                answer = {"read": {**_unpacked(plan.documents[portion]), "last": last}}
            case Wait(pause_ms):
                answer = {"wait": pause_ms}
            case Refuse(slots):
                answer = {"refuse": slots}
            case NoMoreWork():
                answer = {"end": True}
        return answer | {"copies": self._has_copies(asked["slot"])}

    def _last_batch(self, plan: str, slot: str, batch: int) -> int:
        """The last batch before this one that had something of a slot's, or may have had."""
        names = list(self._plans)
        for name in reversed(names[: names.index(plan)]):
            other = self._plans[name]
            if other.batch is None:
                break
            if other.batch < batch and slot in other.owners:
                return other.batch
        return batch - 1

    def _has_copies(self, slot: str) -> bool:
        return self._heirs is not None and self._heirs.hint(slot)

    def _hear_from(self, slot: str) -> None:
        if slot != NO_SLOT:
            with self._lock:
                self._slots.add(slot)


def _packed(document: Mapping[str, Any]) -> bytes:
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 1)


def _unpacked(packed: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(zlib.decompress(packed))
    return document


class _Server(socketserver.ThreadingTCPServer):
    """One thread for each task that is connected."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], service: BindingService) -> None:
        self.service = service
        self.secret = service._secret
        self.connections = Connections(_CONNECTIONS_MAX, _UNPROVEN_MAX)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.connections.take(request, client_address[0]):
            _log.warning("%d tasks are connected: one more is turned away", _CONNECTIONS_MAX)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            # No thread could be started.
            self.connections.leave(request)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        _log.exception("a task's question could not be answered")


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        channel = Channel(self.request, self.server.secret, is_service=True)
        channel.within(_UNPROVEN_S)
        try:
            channel.begin()
            question = channel.receive(ASK_BYTES_MAX)
            self.server.connections.prove(self.request)
            while True:
                channel.within(_SILENCE_S)
                channel.send(self.server.service.answer(question))
                question = channel.receive(ASK_BYTES_MAX)
        except BadLine as failure:
            _log.debug("a connection ends: %s", failure)
        except (KeyError, TypeError, ValueError) as failure:
            _log.warning("a question says nothing: %s", type(failure).__name__)
        except OSError:
            pass
        finally:
            # Before the socket is closed, so that none is shut down whose number another has.
            self.server.connections.leave(self.request)
