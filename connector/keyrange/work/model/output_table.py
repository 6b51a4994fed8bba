"""A table that a job writes, as its tasks and its driver know it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from keyrange.storage.model.partition_columns import PartitionColumn


@dataclass(frozen=True, slots=True)
class OutputTable:
    """`schema` is Spark's JSON of the rows that are made for the table at `uri`.

    With `keys` the table holds the last row of each key, and a row whose column `deletes` is true
    deletes its key; column `keeps` names the columns that a row leaves as they are in the table.
    Neither column, "" for none, is in the table. `tombstones`: whether a record
    without a value deletes too. `evolves`: whether the table gets the columns that it lacks.
    `name`: what the job's function calls it, "" where there is one table. `why_spark`: why the
    session's Delta appends the rows; "" where tasks write files that become the table's.
    """

    uri: str
    schema: str
    partition_by: tuple[PartitionColumn, ...] = ()
    keys: tuple[str, ...] = ()
    deletes: str = ""
    keeps: str = ""
    tombstones: bool = False
    evolves: bool = False
    name: str = ""
    why_spark: str = ""

    @property
    def is_staged(self) -> bool:
        """Whether rows wait in files beside the manifests until they are written into the table."""
        return bool(self.keys or self.why_spark)

    @property
    def columns(self) -> dict[str, Any]:
        """Spark's JSON of the columns that the table has of the rows."""
        document: dict[str, Any] = json.loads(self.schema)
        kept = [
            each for each in document["fields"] if each["name"] not in (self.deletes, self.keeps)
        ]
        return {**document, "fields": kept}
