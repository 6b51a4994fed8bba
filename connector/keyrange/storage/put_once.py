"""A text that is written once in a store of objects, where of several writers the first one counts.

Arrow's file systems overwrite. The first commit of a Delta table is a conditional put
(`If-None-Match` in S3), so of several who make a table in one place one does; the text is the
table's description. It is read as the one file that it is: delta-rs would take four calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from keyrange.storage.cached_delta_table import load_deltalake
from keyrange.storage.directory import Directory
from keyrange.storage.store_failures import text_of

# Delta has no table without a column.
_SCHEMA: Final = pa.schema([("nothing", pa.int32())])
# The one file of such a text, in the place that it was written to.
ENTRY: Final = "_delta_log/00000000000000000000.json"


def put_once(uri: str, text: str) -> bool:
    """Write a text where there is none; whether it was this call that wrote it.

    Raises OSError where it could not be written, and PACKAGE_NOT_FOUND without deltalake.
    """
    delta = load_deltalake()
    try:
        # As DeltaTable.create, which opens the table once more.
        delta.transaction.create_table_with_add_actions(
            uri,
            delta.Schema.from_arrow(_SCHEMA),
            [],
            mode="error",
            description=text,
            # Tried again after another has written, it would write over that.
            commit_properties=delta.CommitProperties(max_commit_retries=0),
        )
    except Exception as failure:
        if read_once(uri) is None:
            raise OSError(text_of(failure, {})) from None
        return False
    return True


def read_once(uri: str) -> str | None:
    """The text that was written; None where there is none. Raises what `Directory` does, ValueError
    where it is something else."""
    data = Directory(uri).read_if_there(ENTRY)
    if data is None:
        return None
    for line in data.splitlines():
        action = json.loads(line)
        if "metaData" in action:
            return str(action["metaData"].get("description") or "")
    raise ValueError(f"{uri} is no text that is written once")


def remove_objects(uri: str, paths: Iterable[str]) -> None:
    """Remove files below a URI, where they are there: one call for each, which stores do not bill.
    Arrow takes three, of which it writes an empty directory in the file's place by one, and five
    for a directory. Raises OSError where one could not be removed."""
    handler = load_deltalake().fs.DeltaStorageHandler(uri, {})
    for path in paths:
        try:
            handler.delete_file(path)
        except FileNotFoundError:
            continue
        except Exception as failure:
            raise OSError(text_of(failure, {})) from None
