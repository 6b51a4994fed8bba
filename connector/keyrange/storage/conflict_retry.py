"""A write to a table that meets a concurrent writer: look at the table again, and try again.

A write that failed may have landed all the same, and the look tells that too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.storage.table_store import Conflict, Store, TableConditions, Transaction

_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class Entry:
    """What is written at once: rows, the transactions that they stand under, and a note."""

    rows: pa.Table
    transactions: Sequence[Transaction]
    note: Mapping[str, str]


class RetryingWriter:
    """Writes to a table, and tries again where it meets other writers. Each entry is written once.

    The messages call what is written `noun`.
    """

    def __init__(self, store: Store, conditions: TableConditions, noun: str) -> None:
        self._store = store
        self._conditions = conditions
        self._noun = noun

    def append(self, next_entry: Callable[[], Entry | None]) -> bool:
        """Write what `next_entry` returns; whether this call has written it.

        `next_entry` looks at the table, before each try and after a write that failed: None says
        that the table has it already. What it raises ends the tries. Raises `unwritable` where the
        store failed, or other writers were faster every time.
        """
        entry = next_entry()
        for _ in range(_TRIES):
            if entry is None:
                return False
            try:
                self._store.write(entry.rows, entry.transactions, entry.note)
                return True
            except Conflict:
                entry = next_entry()
            except KeyrangeError as failure:
                if self._is_left(failure, next_entry):
                    raise
                return False
        message = f"the {self._noun} was not written: other writers were faster every time"
        raise error(self._conditions.unwritable, message, table=self._store.uri)

    def _is_left(self, failure: KeyrangeError, next_entry: Callable[[], Entry | None]) -> bool:
        """Whether a write that failed is not in the table: it may have landed all the same."""
        try:
            return next_entry() is not None
        except KeyrangeError as second:
            if second.condition.name != self._conditions.unreadable:
                raise
            what = f"whether the {self._noun} was written all the same cannot be seen either"
            message = f"{failure.message}; {what}: {second.message}"
            raise error(failure.condition.name, message) from None
