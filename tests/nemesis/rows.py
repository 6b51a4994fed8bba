"""What a job makes of a record: one row, of the parts that its mode asks for, for one table or for
several."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import keyrange
from nemesis.windows import WINDOW_SCHEMA, closed, remember, window_state
from nemesis.work import KEY, SCHEMA, N, deletes, is_copied, work

_RECORD: Final = "key string, value string"
_NO_WINDOW: Final = [None] * len(WINDOW_SCHEMA.split(", "))


@dataclass(frozen=True, slots=True)
class Parts:
    """Which parts a row has: always what `work` says. With `counts` how many records of its key are
    done; with `timers` whether it is late, and those of a window, of which a timer writes a row of
    its own, by event time or `by_clock`; with `fields` so many of the added ones of a value that
    has fields, None where values have none."""

    counts: bool = False
    timers: bool = False
    by_clock: bool = False
    fields: int | None = None

    @property
    def schema(self) -> str:
        more = ["seen bigint"] if self.counts else []
        more += ["late boolean", WINDOW_SCHEMA] if self.timers else []
        if self.fields is not None:
            more += ["writer int", *(f"f{at} bigint" for at in range(1, self.fields + 1))]
        return ", ".join([SCHEMA, *more])

    def row(self, record: Any, *state: Any) -> tuple[Any, ...]:
        """Of a record: what it does to state is done where its work fails too, and taken back."""
        more: list[Any] = []
        if self.counts:
            [kept] = state
            more.append(kept.seen.get(default=0) + 1)
            kept.seen.update(more[0])
        if self.timers:
            is_late = not self.by_clock and record.late
            if not is_late:
                remember(record, *state, self.by_clock)
            more += [is_late, *_NO_WINDOW]
        if self.fields is not None:
            more.append(record.value.writer)
            more += (getattr(record.value, f"f{at}") for at in range(1, self.fields + 1))
        return (*work(record), *more)

    def record(self, record: Any, *state: Any) -> tuple[Any, ...]:
        """Likewise, for a topic."""
        return self.as_record(self.row(record, *state))

    def as_record(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [field.split()[0] for field in self.schema.split(", ")]
        return row[KEY], json.dumps(dict(zip(names, row, strict=True)))

    def window_row(self, key: bytes, at: datetime, state: Any) -> tuple[Any, ...]:
        """Of a window that is over: it names another topic."""
        said = closed(key, at, state, self.by_clock)
        before = [None] * (1 + self.counts)
        behind = [] if self.fields is None else [None] * (1 + self.fields)
        own = ("windows", 0, 0, key.decode(), None, None, time.monotonic_ns(), None)
        return (*own, *before, *said, *behind)


def calls(parts: Parts, tables: Sequence[str], topics: Collection[str] = ()) -> dict[str, Any]:
    """What `keyrange.job` is given for rows of these parts, and tables of which some are topics."""
    found: dict[str, Any] = {"function": parts.row, "schema": parts.schema}
    if parts.timers:
        found["on_timer"] = parts.window_row
    if len(tables) > 1:
        found = spread(parts, tables, topics)
    elif topics:
        found = {"function": parts.record, "schema": _RECORD}
    state = window_state() if parts.timers else {}
    if parts.counts:
        state["seen"] = keyrange.ValueState("n long")
    return found | {"state": state} if state else found


def spread(parts: Parts, tables: Sequence[str], topics: Collection[str]) -> dict[str, Any]:
    """A row for each record, with what becomes of it in the tables beside, or in a topic. The rows
    of windows are in the first table alone."""
    schema = dict.fromkeys(tables, parts.schema) | dict.fromkeys(topics, _RECORD)
    if "last" in tables:
        schema["last"] += ", gone boolean"

    def rows(record: Any, *state: Any) -> dict[str, Any]:
        row = parts.row(record, *state)
        n = row[N]
        found = {"rows": row, "last": (*row, deletes(n))}
        if is_copied(n):
            found["copies"] = parts.as_record(row) if "copies" in topics else row
        return {name: each for name, each in found.items() if name in schema}

    def window_row(key: bytes, at: datetime, state: Any) -> dict[str, Any]:
        return {"rows": parts.window_row(key, at, state)}

    found = {"function": rows, "schema": schema}
    return found | {"on_timer": window_row} if parts.timers else found
