"""How Spark is to read Parquet files that keyrange and its tasks have written: as they are,
whatever the session says of files of others. A day before 1582 stays what it is, and a file that
cannot be read is not passed over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

AS_WRITTEN: Final[Mapping[str, str]] = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}
# A time without a zone is none of the session's, where Spark asks the files for their columns.
INFERRED_AS_WRITTEN: Final[Mapping[str, str]] = {
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true"
}
