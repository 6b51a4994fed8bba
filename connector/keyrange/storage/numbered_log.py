"""Logs in a table, whose entries count from 1 without gaps.

A table holds any number of such logs, each under an application id of its own. The version of an
entry's transaction is its number, so that of two writers one only can write a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final, TypeVar

import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.storage.conflict_retry import Entry, RetryingWriter
from keyrange.storage.table_store import Bounds, Store, TableConditions, Transaction

_Row = TypeVar("_Row")
# How many entries of a log are read at a time at the most: a commit of many key ranges with many
# pending records takes a reader some 10 ms.
_PAGE_MAX: Final = 256


def pages(from_number: int, until_number: int | None, last: int) -> Iterator[range]:
    """The numbers [from_number, until_number) of a log that has come to `last`, few at a time for
    who may take only the first, and then more."""
    begin = max(from_number, 1)
    until = last + 1 if until_number is None else min(until_number, last + 1)
    for page in _growing(until - begin):
        yield range(begin + page.start, begin + page.stop)


def pages_back(last: int) -> Iterator[range]:
    """The numbers up to `last` likewise, from the end on."""
    for page in _growing(last):
        yield range(last + 1 - page.stop, last + 1 - page.start)


def _growing(count: int) -> Iterator[range]:
    at, size = 0, 1
    while at < count:
        yield range(at, min(at + size, count))
        at, size = at + size, min(size * 4, _PAGE_MAX)


class NumberedLog(RetryingWriter):
    """One log of a table. `column` holds the numbers, and `bounds` tell its rows from others. All
    calls raise KeyrangeError by the table's `conditions`."""

    def __init__(
        self,
        store: Store,
        conditions: TableConditions,
        noun: str,
        app_id: str,
        column: str,
        bounds: Mapping[str, str],
    ) -> None:
        super().__init__(store, conditions, noun)
        self._app_id = app_id
        self._column = column
        self._where = dict(bounds)
        self._bounds: Bounds = {name: (value, value) for name, value in bounds.items()}
        # The last number in a table that knows no transactions, as after it was copied.
        self._copied: int | None = None

    def last(self, reached: int = 0) -> int:
        """The number of the last entry, 0 where there is none.

        Raises `behind` where the log has not come as far as `reached`.
        """
        found = self.seen_last() if self._store.refresh() else 0
        self.check_reached(found, reached)
        return found

    def seen_last(self) -> int:
        """The number of the last entry in the table as it was found last."""
        written = self._store.version_of(self._app_id)
        if written is not None:
            return written
        if self._copied is None:
            self._copied = self._store.greatest(self._column, self._bounds) or 0
        return self._copied

    def check_reached(self, last: int, number: int) -> None:
        if last < number:
            message = (
                f"rows of the table are gone: its last {self._noun} is {last}, and {self._noun} "
                f"{number} was there"
            )
            raise error(self._conditions.behind, message, table=self._store.uri, **self._where)

    def read(
        self,
        first: int,
        last: int,
        parse: Callable[[pa.Table], Sequence[_Row]],
        number_of: Callable[[_Row], int],
    ) -> list[_Row]:
        """The entries [first, last] in order. Raises `damaged` where one is not there once."""
        if last < first:
            return []
        bounds = {**self._bounds, self._column: (first, last)}
        found = sorted(parse(self._store.read(bounds)), key=number_of)
        for expected, entry in zip_longest(range(first, last + 1), found):
            if expected is None or entry is None or number_of(entry) != expected:
                raise self.missing(last if expected is None else expected)
        return found

    def missing(self, number: int) -> KeyrangeError:
        message = f"the table does not hold each {self._noun} once"
        where = {**self._where, self._column: number}
        return error(self._conditions.damaged, message, table=self._store.uri, **where)

    def entry(
        self, number: int, rows: pa.Table, note: Mapping[str, str], *also: Transaction
    ) -> Entry:
        """The entry behind number `number - 1`; it may only stand under the other transactions."""
        own = Transaction(self._app_id, number, number - 1 or None)
        return Entry(rows, (own, *also), note)
