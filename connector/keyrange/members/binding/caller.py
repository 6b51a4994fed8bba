"""The side of a task: asks the planning process what to read."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from keyrange.errors import error
from keyrange.members.binding.channel import ANSWER_BYTES_MAX, BadLine, Channel
from keyrange.members.model.task_greeting import Address, SlotRanges

_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 30.0
_TRIES: Final = 3
_PAUSE_S: Final = 0.2


def greet(address: Address, slot: str) -> bool:
    """Show the planning process that it can be reached from a slot; whether that has something to
    copy. Raises BadLine, OSError."""
    return bool(_asked(address, {"hello": {"slot": slot}}).get("copies"))


def ask_for_copies(address: Address, slot: str, done: int) -> dict[str, Any]:
    """What a slot is to copy that has copied version `done`. Raises BadLine, OSError."""
    return _asked(address, {"copies": {"slot": slot, "done": done}})


def _asked(address: Address, question: Mapping[str, Any]) -> dict[str, Any]:
    with _connected(address) as channel:
        channel.send(question)
        return channel.receive(ANSWER_BYTES_MAX)


class Caller:
    """A task's questions. A connection that breaks is made again: what was given stays given, so
    that asking twice is asking once. `copies`: whether its slot has something to copy, as the last
    answer said."""

    def __init__(self, address: Address, plan: str, task: int, batch: int = -1) -> None:
        self._address, self._plan, self._task = address, plan, task
        self.batch = batch
        self.copies = False

    def holding(self, slot: str, run: str) -> SlotRanges:
        """What the present assignment of `run` says of a slot. Raises BINDING_UNREACHABLE."""
        told = self._ask({"ranges": {"slot": slot}})
        since_run, since_epoch = told["since"]
        return SlotRanges(run, told["epoch"], (since_run, since_epoch), told["ranges"])

    def portions(self, slot_now: Callable[[], str]) -> Iterator[dict[str, Any]]:
        """What this task reads, one portion after the other. `slot_now` says which slot the task
        runs in, whenever it asks: an executor that has just begun gets its slot meanwhile, and one
        that was paused may have lost it.

        Raises what `slot_now` does, BINDING_UNREACHABLE where the planning process does not answer,
        PIN_REFUSED where what is left belongs to slots that do not come for it, PLAN_FORGOTTEN.
        """
        own = {"plan": self._plan, "task": self._task, "batch": self.batch}
        position = 0
        while True:
            slot = slot_now()
            answer = self._ask({"ask": own | {"position": position, "slot": slot}})
            self.copies = bool(answer.get("copies"))
            if "read" in answer:
                yield answer["read"]
                position += 1
            elif "wait" in answer:
                time.sleep(answer["wait"] / 1000)
            elif "refuse" in answer:
                slots = ", ".join(map(str, answer["refuse"]))
                raise error(
                    "PIN_REFUSED",
                    f"what is left of this batch is pinned to {slots}, and no task of the batch "
                    f"came to run there within pin.wait.ms; this one runs in "
                    f"{slot or 'no slot'}",
                )
            elif "forgotten" in answer:
                raise error("PLAN_FORGOTTEN", "this task is of a batch that many others came after")
            else:
                return

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        why = ""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S * attempt)
            try:
                return _asked(self._address, question)
            except (BadLine, OSError) as failure:
                why = str(failure) or type(failure).__name__
        raise error(
            "BINDING_UNREACHABLE",
            f"the query's planning process at {self._address.host}:{self._address.port} was asked "
            f"{_TRIES} times what this task reads: {why}",
        )


@contextmanager
def _connected(address: Address) -> Iterator[Channel]:
    with socket.create_connection((address.host, address.port), timeout=_CONNECT_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = Channel(sock, address.secret, is_service=False)
        channel.within(_ANSWER_S)
        channel.begin()
        yield channel
