"""A text that is written once in a store of objects, where of several writers the first one counts.

Arrow's file systems overwrite. The first commit of a Delta table is a conditional put
(`If-None-Match` in S3), so of several who make a table in one place one does; the text is the
table's description.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from keyrange.storage.delta_rs import load_deltalake
from keyrange.storage.failures import text_of

# Delta has no table without a column.
_SCHEMA: Final = pa.schema([("nothing", pa.int32())])


def put_once(uri: str, text: str) -> bool:
    """Write a text where there is none; whether it was this call that wrote it.

    Raises OSError where it could not be written, and PACKAGE_NOT_FOUND without deltalake.
    """
    delta = load_deltalake()
    try:
        delta.DeltaTable.create(
            uri,
            _SCHEMA,
            mode="error",
            description=text,
            raise_if_key_not_exists=False,
            # Tried again after another has written, it would write over that.
            commit_properties=delta.CommitProperties(max_commit_retries=0),
        )
    except Exception as failure:
        if read_once(uri) is None:
            raise OSError(text_of(failure, {})) from None
        return False
    return True


def read_once(uri: str) -> str | None:
    """The text that was written; None where there is none. Raises as `put_once` does."""
    delta = load_deltalake()
    try:
        description: str | None = delta.DeltaTable(uri).metadata().description
    except delta.exceptions.TableNotFoundError:
        return None
    except Exception as failure:
        raise OSError(text_of(failure, {})) from None
    return description
