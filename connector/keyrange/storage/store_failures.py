"""What delta-rs, pyarrow and the store say when something fails, as errors of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.storage.failure_text import text_of
from keyrange.storage.table_store import Conflict, TableConditions

# A stored log or file that is there, and is not what Delta writes.
_DAMAGE = ("json error", "found gap", "parquet error", "invalid json", "magic bytes", "thrift")
_NEWER = ("unsupported: feature", "reader version", "writer version", "protocol")


@contextmanager
def reading(uri: str, settings: Mapping[str, str], conditions: TableConditions) -> Iterator[None]:
    """Failures of a table that is opened, refreshed or read.

    Raises `gone` for files that the log names and that are not there, `damaged`, `unsupported`, and
    `unreadable` for all else.
    """
    try:
        yield
    except (KeyrangeError, Conflict):
        raise
    except Exception as failure:
        raise _read_fault(failure, uri, settings, conditions) from None


def _read_fault(
    failure: Exception, uri: str, settings: Mapping[str, str], conditions: TableConditions
) -> KeyrangeError:
    """A read that failed."""
    text = text_of(failure, settings)
    words = text.lower()
    if isinstance(failure, FileNotFoundError):
        message = f"a file of the table is not there, vacuumed too early or deleted: {text}"
        return error(conditions.gone, message, table=uri)
    if type(failure).__name__ == "DeltaProtocolError" or any(word in words for word in _NEWER):
        return error(conditions.unsupported, f"the table's protocol: {text}", table=uri)
    # What is empty or cut off is seen when a range of it is asked for.
    damaged = isinstance(failure, pa.ArrowInvalid) or "range was invalid" in words
    if damaged or any(word in words for word in _DAMAGE):
        return error(conditions.damaged, text, table=uri)
    return error(conditions.unreadable, text, table=uri)


def writing_fault(
    failure: Exception, uri: str, settings: Mapping[str, str], conditions: TableConditions
) -> KeyrangeError:
    """A write that failed, for whichever reason: nothing can be said of it but the store's text."""
    return error(conditions.unwritable, text_of(failure, settings), table=uri)
