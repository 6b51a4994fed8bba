"""State as a function of single records sees it: `state.total.get()`, `state.total.update(...)`.

A function changes the entry of its key in place; how to take that back is noted until the record
is done.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NoReturn

from keyrange.keyed_state.state_entries import ABSENT, Entries, Entry, Rows
from keyrange.keyed_state.variables import TIMER_RETRY, TIMERS

NO_ON_TIMER: Final = (
    "the job has no on_timer: give keyrange.job the function that is called when a timer is due"
)
Undo = list[Callable[[], object]]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Current:
    """The entry of the key whose record the function has, and what it was before: `before` of one
    that was changed, and `undo` for what was changed within a list or a map."""

    __slots__ = ("before", "entry", "time_ms", "undo")

    def __init__(self, time_ms: int) -> None:
        self.time_ms = time_ms
        self.entry: Entry = []
        self.before: Entry | None = None
        self.undo: Undo = []

    def take_back(self) -> None:
        take_back(self.entry, self.before, self.undo)
        self.before = None


def take_back(entry: Entry, before: Entry | None, undo: Undo) -> None:
    """Let an entry be what it was; `before` of one that was not changed is None."""
    for each in reversed(undo):
        each()
    undo.clear()
    if before is not None:
        entry[:] = before


class _Handle:
    """A variable, of the key of the record that the function has."""

    __slots__ = ("_at", "_current", "_end", "_rows", "_ttl_ms")

    def __init__(self, current: Current, at: int, count: int, form: Any, ttl_ms: int) -> None:
        self._current = current
        self._at = at
        self._end = at + count
        self._rows: Rows = form.rows
        self._ttl_ms = ttl_ms

    def exists(self) -> bool:
        """Whether the key has a value."""
        return self._current.entry[self._at] is not ABSENT

    def clear(self) -> None:
        """Let the key have none."""
        self._set(ABSENT)

    def _set(self, value: Any) -> None:
        current = self._current
        entry = current.entry
        if current.before is None:
            current.before = entry[:]
        entry[self._at] = value
        if self._ttl_ms:
            entry[self._end] = None if value is ABSENT else current.time_ms + self._ttl_ms


class ValueHandle(_Handle):
    """A ValueState."""

    __slots__ = ()

    def get(self, default: Any = None) -> Any:
        """The value, `default` where there is none."""
        value = self._current.entry[self._at]
        return default if value is ABSENT else self._rows.given(value)

    def update(self, value: Any) -> None:
        """Raises TypeError or ValueError for what the variable's schema does not take."""
        self._set(self._rows.taken(value))


class ListHandle(_Handle):
    """A ListState. A list without rows is none."""

    __slots__ = ()

    def get(self) -> Iterator[Any]:
        """The rows, in the order in which they were appended."""
        value = self._current.entry[self._at]
        return iter(()) if value is ABSENT else map(self._rows.given, tuple(value))

    def put(self, rows: Iterable[Any]) -> None:
        """Let these be the list."""
        found = [self._rows.taken(row) for row in rows]
        self._set(found or ABSENT)

    def append(self, row: Any) -> None:
        """Add a row behind the others."""
        self.extend((row,))

    def extend(self, rows: Iterable[Any]) -> None:
        """Add rows behind the others."""
        found = [self._rows.taken(row) for row in rows]
        value = self._current.entry[self._at]
        if value is ABSENT or not found:
            if found:
                self._set(found)
            return
        count = len(value)
        self._set(value)
        self._current.undo.append(partial(value.__delitem__, slice(count, None)))
        value += found


class MapHandle(_Handle):
    """A MapState. A map without entries is none."""

    __slots__ = ("_keys",)

    def __init__(self, current: Current, at: int, count: int, form: Any, ttl_ms: int) -> None:
        super().__init__(current, at, count, form, ttl_ms)
        self._keys: Rows = form.keys

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key of the map, `default` where there is none."""
        value = self._current.entry[self._at]
        row = ABSENT if value is ABSENT else value.get(self._keys.taken(key), ABSENT)
        return default if row is ABSENT else self._rows.given(row)

    def contains(self, key: Any) -> bool:
        value = self._current.entry[self._at]
        return value is not ABSENT and self._keys.taken(key) in value

    def update(self, key: Any, row: Any) -> None:
        """Set the value of a key of the map. Raises TypeError or ValueError for what the schemas do
        not take."""
        if key is None:
            raise TypeError("a key of a map cannot be None")
        key, row = self._keys.taken(key), self._rows.taken(row)
        value = self._current.entry[self._at]
        if value is ABSENT:
            self._set({key: row})
            return
        self._set(value)
        if key in value:
            self._current.undo.append(partial(value.__setitem__, key, value[key]))
        else:
            self._current.undo.append(partial(value.pop, key, None))
        value[key] = row

    def remove(self, key: Any) -> None:
        """Remove a key of the map, if it is there."""
        value = self._current.entry[self._at]
        key = self._keys.taken(key)
        if value is not ABSENT and key in value:
            left = {each: row for each, row in value.items() if each != key}
            self._set(left or ABSENT)

    def keys(self) -> Iterator[Any]:
        value = self._current.entry[self._at]
        return iter(()) if value is ABSENT else iter(tuple(value))

    def values(self) -> Iterator[Any]:
        return iter([each for _, each in self.items()])

    def items(self) -> Iterator[tuple[Any, Any]]:
        value = self._current.entry[self._at]
        items = () if value is ABSENT else tuple(value.items())
        return ((key, self._rows.given(row)) for key, row in items)


class TimersHandle:
    """`state.timers`: when the job's `on_timer` is called for the key."""

    __slots__ = ("_at", "_current", "_fires")

    def __init__(self, current: Current, at: int, fires: bool) -> None:
        """`fires`: the job has a function that is called for timers."""
        self._current = current
        self._at = at
        self._fires = fires

    def set(self, at: datetime) -> None:
        """Let a timer be due at a time, if none is yet. A time without a zone counts as UTC. Raises
        TypeError for what is no time, and RuntimeError where the job has no `on_timer`."""
        if not self._fires:
            raise RuntimeError(NO_ON_TIMER)
        time_us, timers = microseconds(at), self._timers()
        place = bisect_left(timers, time_us)
        if place == len(timers) or timers[place] != time_us:
            self._set([*timers[:place], time_us, *timers[place:]])

    def delete(self, at: datetime) -> None:
        """Let no timer be due at a time."""
        time_us, timers = microseconds(at), self._timers()
        if time_us in timers:
            self._set([each for each in timers if each != time_us])

    def clear(self) -> None:
        """Let no timer be due."""
        if self._timers():
            self._set([])

    def list(self) -> Sequence[datetime]:
        """When timers are due, the earliest first, in UTC."""
        return [instant(each) for each in self._timers()]

    def _timers(self) -> Any:
        value = self._current.entry[self._at]
        return () if value is ABSENT else value

    def _set(self, timers: Any) -> None:
        current = self._current
        if current.before is None:
            current.before = current.entry[:]
        current.entry[self._at] = timers or ABSENT


def microseconds(at: datetime) -> int:
    """Since 1970. Raises TypeError for what is no time."""
    if not isinstance(at, datetime):
        raise TypeError(f"a timer is due at a datetime, and not at a {type(at).__name__}")
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND


def instant(time_us: int) -> datetime:
    """A time of so many microseconds since 1970, in UTC."""
    return _EPOCH + timedelta(microseconds=time_us)


_HANDLES: Final[Mapping[str, type[_Handle]]] = {
    "value": ValueHandle,
    "list": ListHandle,
    "map": MapHandle,
}


class KeyState:
    """What a function is given beside a record: its key's variables, as attributes."""

    def __init__(self, current: Current, entries: Entries, fires: bool = False) -> None:
        """`fires` as of `TimersHandle`."""
        variables = entries.form.variables
        for at, (variable, form) in enumerate(zip(variables, entries.forms, strict=True)):
            handle: _Handle | TimersHandle
            if variable.name == TIMER_RETRY:
                continue
            if variable.kind == "timers":
                handle = TimersHandle(current, at, fires)
            else:
                handle = _HANDLES[variable.kind](current, at, len(variables), form, variable.ttl_ms)
            object.__setattr__(self, variable.name, handle)

    def __setattr__(self, name: str, value: object) -> None:
        """An attribute that is set would be state of no key, and be there for the next one. The
        text has the name of a variable alone: it is told where no payload may be."""
        if name not in vars(self):
            self.__getattr__(name)
        raise AttributeError(f"state.{name} cannot be set: call its update, put or append")

    def __getattr__(self, name: str) -> NoReturn:
        """Called for what is no variable."""
        has = f", with {', '.join(vars(self))},"
        if name == TIMERS:
            has = " of a job without time (time=keyrange.EventTime(...) or ProcessingTime())"
        raise AttributeError(f"'KeyState' object{has} has no attribute {name!r}")
