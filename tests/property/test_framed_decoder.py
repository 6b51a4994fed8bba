"""Payloads that say their own schemas are read as one by one, whatever stands beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from keyrange.formats.payloads import Payloads
from keyrange.model.value_forms import ReadSettings, Schema
from keyrange.registry.framed_decoder import FramedDecoder
from keyrange.registry.prefixes import BadPrefix, prefix_sizes, read_prefix
from keyrange.registry.registered_schemas import RegisteredSchema
from registries.framed import COLUMN, HEADER, UNFIT, Known, ToldFormat, prefix, zigzag

GUID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
OTHER_GUID = "00000000-0000-0000-0000-000000000000"
IDS = (0, 1, 2, 2**32 - 1, 256, GUID)
FOREIGN, UNKNOWN, UNRESOLVED = 7, (8, OTHER_GUID), 9

ids = st.sampled_from((*IDS, *IDS, FOREIGN, *UNKNOWN, UNRESOLVED))
paths = st.sampled_from([(0,), (0,), (1,), (0, 0), (3,), (0, 1), (2**31 - 1,), (0,) * 70, (-1,)])
bodies = st.binary(max_size=12) | st.sampled_from([b"", b"!", b"!x", b"\0" * 9])


@st.composite
def framed(draw: st.DrawFn, indexed: bool) -> bytes:
    whole = prefix(draw(ids), draw(paths) if indexed else ()) + draw(bodies)
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole


def payloads_of(indexed: bool) -> st.SearchStrategy[bytes | None]:
    alike = prefix(1, (0,) if indexed else ())
    usual = bodies.map(lambda body: alike + body)
    return st.none() | usual | framed(indexed) | st.binary(max_size=24)


def headers_of(indexed: bool) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["__value_schema_id", "__key_schema_id", "a", ""])
    values = st.none() | framed(indexed) | st.binary(max_size=6)
    return st.lists(st.tuples(names, values), max_size=3)


@st.composite
def batches(draw: st.DrawFn) -> tuple[bool, bool, list[bytes | None], list[Any] | None]:
    indexed, rescues = draw(st.booleans()), draw(st.booleans())
    rows = draw(st.lists(payloads_of(indexed), max_size=12))
    count = len(rows)
    told = st.lists(headers_of(indexed), min_size=count, max_size=count)
    return indexed, rescues, rows, draw(st.none() | told)


def known(kind: str) -> Known:
    found = {id: RegisteredSchema(id, kind, Schema(f"text {id}")) for id in IDS}
    found[FOREIGN] = RegisteredSchema(FOREIGN, "JSON", Schema("{}"))
    found[UNRESOLVED] = RegisteredSchema(UNRESOLVED, kind, Schema(UNFIT))
    return Known(dict(found))


def one_by_one(
    row: bytes | None, told: list[Any] | None, indexed: bool
) -> tuple[dict[str, Any] | None, str | None]:
    """The value of a row, and what is wrong with it."""
    if row is None:
        return None, None
    header = "__value_schema_id"
    named = [value for name, value in told or () if name == header and value is not None]
    try:
        said = read_prefix(named[-1] if named else row, indexed)
    except BadPrefix as failure:
        if named:
            return None, f"header {header}: {failure}"
        more = "; a schema that is said by a header is read with includeHeaders=true"
        return None, f"{failure}{more if told is None else ''}"
    kind = "PROTOBUF" if indexed else "AVRO"
    found = known(kind).schemas.get(said.id)
    if found is None:
        return None, f"schema {said.id} is not known to the registry"
    if found.type != kind:
        return None, f"schema {said.id} is of type JSON, and {kind} is read"
    message = ""
    if indexed:
        message = {(0,): "first", (1,): "second", (0, 0): "first.inner"}.get(said.indexes, "")
        if not message:
            return None, f"schema {said.id} cannot be read as the columns: it has no such message"
    if found.schema.text == UNFIT:
        return None, f"schema {said.id} cannot be read as the columns: field a is missing"
    payload = row if named else row[said.size :]
    if payload[:1] == b"!":
        return None, f"bad by {found.schema.text}"
    return {"schema": found.schema.text, "message": message, "payload": payload}, None


@given(batches(), st.integers(0, 3), bodies, st.randoms(use_true_random=False))
@example((False, False, [prefix(1) + b"a", None, prefix(1)], None), 0, b"", None)
@example((False, False, [prefix(1), prefix(1)[:4]], None), 0, b"\1", None)
@example((True, True, [None, prefix(GUID, (1,)) + b"a"], [[], []]), 1, b"", None)
def test_rows_are_read_as_one_by_one(batch: Any, skipped: int, behind: bytes, chance: Any) -> None:
    indexed, rescues, rows, told = batch
    count = len(rows)
    column = pa.array([b"skipped"] * skipped + rows + [behind], pa.binary())
    payloads = Payloads.of(column.slice(skipped, count))
    if chance is not None and chance.random() < 0.5:
        order = chance.sample(range(count), count)
        payloads = payloads.take(np.array(order, np.int64))
        rows = [rows[at] for at in order]
        told = told and [told[at] for at in order]
    headers = None
    if told is not None:
        entries = [[{"key": "x", "value": b""}]] * skipped + [
            [{"key": name, "value": value} for name, value in each] for each in told
        ]
        headers = pa.array(entries, HEADER).slice(skipped)
    kind = "PROTOBUF" if indexed else "AVRO"
    reader = RegisteredSchema(1, kind, Schema("text 1"))
    settings = ReadSettings(rescues=rescues)
    read = FramedDecoder(known(kind), reader, ToldFormat(), settings).read(payloads, headers)
    each_told = [None] * count if told is None else told
    wanted = [one_by_one(*both, indexed) for both in zip(rows, each_told, strict=True)]
    read.column.validate(full=True)
    assert read.column.type == COLUMN
    assert read.column.to_pylist() == [value for value, _ in wanted]
    assert read.bad == {at: error for at, (_, error) in enumerate(wanted) if error is not None}
    assert [*read.bad] == sorted(read.bad)
    left = [None if value is None else f'"{value["schema"]}"' for value, _ in wanted]
    assert (read.rescued is None) == (not rescues)
    assert read.rescued is None or read.rescued.to_pylist() == left


@given(st.lists(st.none() | framed(True) | st.binary(max_size=24), max_size=8), st.booleans())
def test_sizes_of_many_prefixes_are_those_of_each(rows: list[bytes | None], indexed: bool) -> None:
    def size(row: bytes | None) -> int:
        try:
            return 0 if row is None else read_prefix(row, indexed).size
        except BadPrefix:
            return 0

    sizes = prefix_sizes(Payloads.of(pa.array(rows, pa.binary())), indexed)
    assert sizes.tolist() == [size(row) for row in rows]


@given(st.integers(-(2**31), 2**31 - 1))
def test_indexes_are_zigzag_varints(number: int) -> None:
    written = prefix(1) + zigzag(1) + zigzag(number)
    if number < 0:
        assert prefix_sizes(Payloads.of(pa.array([written])), True).tolist() == [0]
    else:
        assert read_prefix(written, True).indexes == (number,)
