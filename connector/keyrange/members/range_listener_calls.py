"""Option keyRangeListener: a class of the user's, told in the executors which key ranges their
slots get and lose.

Whichever task of an executor comes first with another assignment tells it; the others wait for
that, so nothing of a range is read before. What was told is kept in the executor's directory: it is
told once, however many Python processes an executor has, and an executor that comes back is another
one. Where telling fails, or its process dies, the next task tells the same again.
"""

from __future__ import annotations

import importlib
import json
import logging
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from keyrange.errors import error
from keyrange.members.model.assignment import Ranges, without
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import read_ranges
from keyrange.model.offsets import by_partition
from keyrange.options.allowlist import NotAllowed, check_found, check_module, not_allowed
from keyrange.ranges.sharing.shared_directory import locked, name_of, put_in_place

_log = logging.getLogger(__name__)

# By topic, by partition, both ends of each range included.
Document = Mapping[str, Mapping[str, list[list[int]]]]


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds a slot: `member` is its id in the group, another one where it has lost the name
    meanwhile; `run` is that of the query that says so."""

    slot: str
    member: str
    run: str


@dataclass(frozen=True, slots=True)
class _Told:
    """What a listener was told last."""

    held: Held
    epoch: int
    ranges: Document = field(default_factory=dict)


class Listening:
    """The listener of one query's group in one executor. `named` is package.module:Class."""

    def __init__(self, named: str, query: str, group: str, executor: Path) -> None:
        self._named = named
        self._path = executor / f"told-{name_of(query, group)}.json"

    def tell(self, held: Held, epoch: int, ranges: Callable[[], Document]) -> None:
        """Say what a slot has as of an epoch, unless that was said; `ranges` asks for it.

        What went while the member was one all along was revoked, and else lost. Raises
        KEY_RANGE_LISTENER_NOT_FOUND, KEY_RANGE_LISTENER_FAILED, OSError.
        """
        if self._is_known(held, epoch):
            return
        with locked(self._path.with_suffix(".lock")):
            before = self._read()
            # Another task has, or a later one.
            if self._is_known(held, epoch):
                return
            now = _Told(held, epoch, ranges())
            self._say(before, now)
            put_in_place(self._path, json.dumps(asdict(now)))

    def announce(self, slot: str, epoch: int, ranges: Document) -> bool:
        """Say what a slot gets by an epoch, unless that was said and taken for ready; whether it is
        ready. One that raises has nothing to prepare."""
        path = self._path.with_suffix(".announced")
        mark = json.dumps([slot, epoch, ranges])
        with suppress(OSError):
            if not ranges or path.read_text() == mark:
                return True
        try:
            if not self._made().on_key_ranges_announced(_ranges(ranges)):
                return False
        except Exception:
            _log.exception("option keyRangeListener: %s was told what it gets", self._named)
        put_in_place(path, mark)
        return True

    def lose(self) -> None:
        """Say that everything is lost that the executor had. Raises as `tell` does."""
        with locked(self._path.with_suffix(".lock")):
            before = self._read()
            if before is not None:
                self._say(before, _Told(Held("", "", ""), before.epoch))
                self._path.unlink()

    def _is_known(self, held: Held, epoch: int) -> bool:
        told = self._read()
        return told is not None and told.held == held and told.epoch >= epoch

    def _say(self, before: _Told | None, now: _Told) -> None:
        had = _ranges(before.ranges) if before is not None else {}
        has = _ranges(now.ranges)
        gone, new = without(had, has), without(has, had)
        if not gone and not new:
            return
        listener = self._made()
        if gone and before is not None:
            stayed = (before.held.slot, before.held.member) == (now.held.slot, now.held.member)
            calls = listener.on_key_ranges_revoked if stayed else listener.on_key_ranges_lost
            self._call(calls, gone)
        if new:
            self._call(listener.on_key_ranges_assigned, new)

    def _made(self) -> KeyRangeListener:
        module, _, name = self._named.partition(":")
        try:
            check_module(module)
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
            check_found(found)
            made = found()
        except NotAllowed as failure:
            raise not_allowed("keyRangeListener", failure) from None
        except Exception as failure:
            raise error(
                "KEY_RANGE_LISTENER_NOT_FOUND",
                f"option keyRangeListener: {self._named} cannot be made in the executor: "
                f"{type(failure).__name__}: {failure}",
            ) from failure
        if not isinstance(made, KeyRangeListener):
            raise error(
                "KEY_RANGE_LISTENER_NOT_FOUND",
                f"option keyRangeListener: {self._named} is no keyrange.KeyRangeListener",
            )
        return made

    def _call(self, told: Callable[[Ranges], None], ranges: Ranges) -> None:
        try:
            told(ranges)
        except Exception as failure:
            failed = error(
                "KEY_RANGE_LISTENER_FAILED",
                f"option keyRangeListener: {self._named} raised {type(failure).__name__}",
            )
            failed.add_note("".join(traceback.format_exception(failure)))
            raise failed from failure

    def _read(self) -> _Told | None:
        """What was told last; None where nothing was, or what is there cannot be read."""
        try:
            document = json.loads(self._path.read_bytes())
            return _Told(Held(**document["held"]), document["epoch"], document["ranges"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _ranges(document: Document) -> Ranges:
    return {partition: read_ranges(spans) for partition, spans in sorted(by_partition(document))}
