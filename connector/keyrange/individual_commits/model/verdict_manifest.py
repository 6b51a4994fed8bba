"""What a manifest says: the verdict of a batch, as it is written once and read again."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final

from keyrange.errors import KeyrangeError, error
from keyrange.model.checkpoint import Checkpoint

_VERSION: Final = 1
# They are put into paths. A verdict without rows has no attempt.
_ATTEMPT: Final = re.compile(r"^[A-Za-z0-9_-]*\Z")
_PART: Final = re.compile(r"^part-[A-Za-z0-9._-]+\Z")

# Rows by the member of the results that they are of.
Found = dict[str, list[tuple[Any, ...]]]
# Topic, partition, and offsets of it: from one, up to but not including another, and up to but not
# including a third for rows of timers.
Left = tuple[tuple[str, int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class ManifestTable:
    """A table that the output goes to: where it is, what Delta calls it, Spark's JSON of the
    columns of the output, and the columns by which that is merged into it, none where it is
    appended. `by_spark`: the session's Delta appends it."""

    uri: str
    table_id: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    by_spark: bool = False

    @property
    def is_staged(self) -> bool:
        """Whether the rows are in files beside the manifests, from which they are written."""
        return bool(self.keys) or self.by_spark


@dataclass(frozen=True, slots=True)
class ManifestTopic:
    """A topic that the output goes to, "" where a column says it, by at most so many `senders`.
    `schema` as of a table, `topic_id` as of `TopicAddress`."""

    topic: str
    senders: int
    schema: Mapping[str, Any] = field(default_factory=dict)
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What counts as the verdict of a batch.

    `files`: name to bytes, of `attempt`; "" where there is none. `schema` is Spark's JSON of the
    user's columns. `start` and `end` are the offsets of the batch. `staged`: earlier batches with
    output that was not released before this batch, `left`: for each of them the offsets of which it
    may be released still. `counted`: the rows say how many records are done. `terms`: options that
    the rows rest on. `tables`: where the output is, by the names that a job has for them, and ""
    for the only one, and `topics` likewise; neither where it is in the files. `rows`: what tasks
    handed to the driver and is not in the files, as `verdict_files.rows_in` has it. `inline`: small
    files of the attempt, by their names, in base64: they are here alone.
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
    left: Mapping[int, Left] = field(default_factory=dict)
    tables: Mapping[str, ManifestTable] = field(default_factory=dict)
    topics: Mapping[str, ManifestTopic] = field(default_factory=dict)
    rows: Found = field(default_factory=dict)
    inline: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_of_job(self) -> bool:
        """Whether the output goes to tables or topics of a job."""
        return bool(self.tables or self.topics)

    @property
    def is_held(self) -> bool:
        """Whether its rows wait until everything before their record is done."""
        return self.is_of_job and self.terms.get("commit.isolation") == "transactional"

    @property
    def has_output(self) -> bool:
        """Whether some of its files may hold rows of output."""
        return bool(self.output_bytes)

    @property
    def output_bytes(self) -> int:
        """How large the files are that may hold rows of output."""
        if self.is_of_job:
            return sum(size for _, size, *_ in self.rows.get("file", ()))
        return sum(self.files.values())

    @property
    def attempts(self) -> set[str]:
        """The directories in which its files are."""
        return {self.attempt, *(name.partition("/")[0] for name in self.staged_files)}

    @property
    def staged_files(self) -> list[str]:
        """The files of rows that wait to be written, by their names below all verdicts."""
        staged = self.topics.keys() | {
            name for name, each in self.tables.items() if each.is_staged or self.is_held
        }
        return [row[0] for row in self.rows.get("file", ()) if row[-1] in staged]

    @property
    def done(self) -> int:
        """How many records the batch has done, as far as its rows count them."""
        return sum(records for _, _, records in self.rows.get("done", ()))

    @property
    def tombstones(self) -> int:
        """How many of these have no value, where values are read."""
        return sum(records for _, _, records in self.rows.get("tombstones", ()))

    @property
    def plan(self) -> str:
        """What tells its offsets from those of others."""
        return _digest([self.start, self.end])

    @property
    def verdict(self) -> str:
        """What tells its output from that of another attempt: names of files are of one alone."""
        return _digest([row[0] for row in self.rows.get("file", ())])

    def to_json(self) -> bytes:
        document = {each.name: getattr(self, each.name) for each in fields(self)}
        # It is in the path.
        del document["batch_id"]
        document["tables"] = {name: asdict(each) for name, each in self.tables.items()}
        document["topics"] = {name: asdict(each) for name, each in self.topics.items()}
        body = json.dumps(document | {"version": _VERSION}, sort_keys=True, indent=1).encode()
        return sealed(body)


def _digest(told: Any) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def of_tasks(found: Found) -> dict[str, Any]:
    """What tasks have handed on, as fields of a manifest: those that have outcomes have written
    them for one attempt."""
    outcomes = found["outcome_file"]
    attempts = {attempt for attempt, _, _, _ in outcomes}
    return {
        "attempt": attempts.pop() if attempts else "",
        "files": {name: size for _, name, size, data in outcomes if data is None},
        "inline": {
            name: b64encode(data).decode() for _, name, _, data in outcomes if data is not None
        },
        "rows": {member: rows for member, rows in found.items() if member != "outcome_file"},
    }


def released(held: Manifest, files: Sequence[tuple[Any, ...]]) -> Manifest:
    """The manifest of what a batch writes of output that is held: `files` as tasks tell of them."""
    return Manifest(
        held.batch_id,
        start=held.start,
        end=held.end,
        tables=held.tables,
        topics=held.topics,
        rows={"file": [*files]},
    )


def planned(start: Checkpoint, end: Checkpoint) -> tuple[dict[str, Any], dict[str, Any]]:
    """The offsets of a batch as manifests hold them."""
    return start.to_json(), end.to_json()


def read_manifest(batch_id: int, data: bytes) -> Manifest:
    """Raises ValueError where the bytes are no manifest, or not those that were written."""
    size = len(_head(b""))
    if data[:size] != _head(data[size:]):
        raise ValueError("the manifest does not begin with the checksum of its bytes")
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
        "tables": {
            name: ManifestTable(**{**each, "keys": tuple(each["keys"])})
            for name, each in (document.get("tables") or {}).items()
        },
        "topics": {
            name: ManifestTopic(**each) for name, each in (document.get("topics") or {}).items()
        },
        "counted": document.get("counted") is True,
        "left": {
            int(at): tuple((str(topic), *map(int, offsets)) for topic, *offsets in each)
            for at, each in (document.get("left") or {}).items()
        },
        "rows": {member: [tuple(row) for row in found] for member, found in (rows or {}).items()},
    }
    return Manifest(**{name: value for name, value in known.items() if value is not None})


def sealed(body: bytes) -> bytes:
    """A document of JSON with a first member more: the CRC-32 of what follows that."""
    return _head(body[1:]) + body[1:]


def _head(rest: bytes) -> bytes:
    return b'{"crc32": "%08x",' % zlib.crc32(rest)


def check_output(
    manifest: Manifest,
    tables: Mapping[str, ManifestTable],
    evolving: Collection[str] = (),
    topics: Mapping[str, ManifestTopic] = MappingProxyType({}),
) -> None:
    """Raises BATCH_UNFINISHED where a verdict that was made before has its output elsewhere
    than in `tables` and `topics`, or of other columns, but for those of the tables that are
    `evolving`."""

    def refused(was: str, is_now: str) -> KeyrangeError:
        text = f"the output of a batch that is not finished {was}, and is to {is_now}"
        return error("BATCH_UNFINISHED", text, batch=manifest.batch_id)

    places = [_places(manifest.tables, manifest.topics), _places(tables, topics)]
    if places[0] != places[1]:
        raise refused(f"was made for {_told(places[0])}", f"go to {_told(places[1])}")
    was: Mapping[str, Any] = {**manifest.tables, **manifest.topics}
    outputs: Mapping[str, Any] = {**tables, **topics}
    for name, each in outputs.items():
        if name not in evolving and was[name].schema != each.schema:
            raise refused(f"is {_columns(was[name].schema)}", f"be {_columns(each.schema)}")


def _places(
    tables: Mapping[str, ManifestTable], topics: Mapping[str, ManifestTopic]
) -> dict[str, str]:
    places = {name: f"table {each.uri}" for name, each in tables.items()}
    return places | {name: topic_text(each.topic) for name, each in topics.items()}


def topic_text(topic: str) -> str:
    """What messages call a topic, or those that a column names."""
    return f"topic {topic}" if topic else "topics by their column"


def _told(places: Mapping[str, str]) -> str:
    named = [f"{place}{f' as {name}' if name else ''}" for name, place in places.items()]
    return ", ".join(named)[:500] or "keyrange.process and keyrange.materialize"


def _columns(schema: Mapping[str, Any]) -> str:
    """The columns of Spark's JSON of a schema, in short."""
    columns = [f"{each['name']} {_type(each['type'])}" for each in schema.get("fields", ())]
    return ", ".join(columns)[:500] or "without columns"


def _type(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind.get("type"))
