"""What a manifest says: the verdict of a batch, as it is written once and read again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from keyrange.errors import KeyrangeError, error
from keyrange.model.checkpoint import Checkpoint

_VERSION: Final = 1
# They are put into paths. A verdict without rows has no attempt.
_ATTEMPT: Final = re.compile(r"^[A-Za-z0-9_-]*\Z")
_PART: Final = re.compile(r"^part-[A-Za-z0-9._-]+\Z")

# Rows by the member of the results that they are of.
Found = dict[str, list[tuple[Any, ...]]]
# Topic, partition, and an offset of it.
Floors = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What counts as the verdict of a batch.

    `files`: name to bytes, of `attempt`; "" where there is none. `schema` is Spark's JSON of the
    user's columns. `start` and `end` are the offsets of the batch. `staged`: earlier batches with
    output that was not released before this batch, `floors`: for each of them the offsets, as
    (topic, partition, offset), below which its output was. `counted`: the rows say how many records
    are done. `terms`: options that the rows rest on. `table`: where the output is, "" for the
    files, and `table_id` what Delta calls that. `rows`: what tasks handed to the driver and is not
    in the files, as `verdict_files.rows_in` has it. `inline`: small files of the attempt, by their
    names, in base64: they are here alone.
    """

    batch_id: int
    attempt: str = ""
    files: Mapping[str, int] = field(default_factory=dict)
    schema: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, Any] = field(default_factory=dict)
    end: Mapping[str, Any] = field(default_factory=dict)
    staged: tuple[int, ...] = ()
    counted: bool = True
    terms: Mapping[str, Any] = field(default_factory=dict)
    floors: Mapping[int, Floors] = field(default_factory=dict)
    table: str = ""
    table_id: str = ""
    rows: Found = field(default_factory=dict)
    inline: Mapping[str, str] = field(default_factory=dict)

    @property
    def plan(self) -> str:
        """What tells its offsets from those of others."""
        told = json.dumps([self.start, self.end], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def to_json(self) -> bytes:
        document = {each.name: getattr(self, each.name) for each in fields(self)}
        # It is in the path.
        del document["batch_id"]
        return json.dumps(document | {"version": _VERSION}, sort_keys=True, indent=1).encode()


def planned(start: Checkpoint, end: Checkpoint) -> tuple[dict[str, Any], dict[str, Any]]:
    """The offsets of a batch as manifests hold them."""
    return start.to_json(), end.to_json()


def read_manifest(batch_id: int, data: bytes) -> Manifest:
    """Raises ValueError where the bytes are no manifest."""
    document = json.loads(data)
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError(
            f"the manifest is not one of version {_VERSION}, and a batch is finished by the "
            "keyrange that began it"
        )
    files, staged = document.get("files"), document.get("staged")
    attempt, rows = document.get("attempt"), document.get("rows")
    whole = (
        isinstance(attempt, str)
        and bool(_ATTEMPT.match(attempt))
        and isinstance(files, dict)
        and all(isinstance(size, int) and _PART.match(name) for name, size in files.items())
        and isinstance(staged, list)
        and all(isinstance(each, int) for each in staged)
        and all(isinstance(each, str) for each in (document.get("inline") or {}).values())
        and isinstance(rows, dict)
        and all(isinstance(each, list) for each in rows.values())
        and all(isinstance(row, list) for each in rows.values() for row in each)
        and all(isinstance(document.get(name), dict) for name in ("schema", "start", "end"))
    )
    if not whole:
        raise ValueError("the manifest lacks something")
    known = {each.name: document[each.name] for each in fields(Manifest) if each.name in document}
    known |= {
        "batch_id": batch_id,
        "staged": tuple(staged or ()),
        "counted": document.get("counted") is True,
        "floors": {
            int(at): tuple((str(topic), int(number), int(offset)) for topic, number, offset in each)
            for at, each in (document.get("floors") or {}).items()
        },
        "rows": {member: [tuple(row) for row in found] for member, found in (rows or {}).items()},
    }
    return Manifest(**{name: value for name, value in known.items() if value is not None})


def check_output(manifest: Manifest, table: str, schema: Mapping[str, Any] | None = None) -> None:
    """Raises BATCH_UNFINISHED where a verdict that was made before has its output elsewhere
    than in `table`, or of another schema than one that is given."""

    def refused(was: str, is_now: str) -> KeyrangeError:
        text = f"the output of a batch that is not finished {was}, and is to {is_now}"
        return error("BATCH_UNFINISHED", text, batch=manifest.batch_id)

    if manifest.table != table:
        places = [
            f"table {each}" if each else "keyrange.process and keyrange.materialize"
            for each in (manifest.table, table)
        ]
        raise refused(f"was made for {places[0]}", f"go to {places[1]}")
    if schema is not None and manifest.schema != schema:
        raise refused(f"is {_columns(manifest.schema)}", f"be {_columns(schema)}")


def _columns(schema: Mapping[str, Any]) -> str:
    """The columns of Spark's JSON of a schema, in short."""
    columns = [f"{each['name']} {_type(each['type'])}" for each in schema.get("fields", ())]
    return ", ".join(columns)[:500] or "without columns"


def _type(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind.get("type"))
