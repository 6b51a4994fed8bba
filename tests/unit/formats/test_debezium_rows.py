"""Changes as the rows after them: which key they are of, what they leave, and what has no row."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pytest

from captured.source_table import UNAVAILABLE
from keyrange.errors import KeyrangeError
from keyrange.formats.debezium.unavailable import are_unavailable
from keyrange.model.value_forms import DELETED, KEPT, ValueForms
from keyrange.options import parse_options
from keyrange.values.forms import rows_after, value_forms
from keyrange.values.reading import ValueReader, types_of

REQUIRED = {"kafka.bootstrap.servers": "h:9", "subscribe": "t", "valueFormat": "debezium"}
DDL = "id bigint, region string, name string"


def forms(*keys: str, **given: str) -> ValueForms:
    options = parse_options(REQUIRED | {"valueSchema": DDL, **given}, "stream")
    return rows_after(value_forms(options), keys)


def change(op: str, before: Any = None, after: Any = None) -> bytes:
    return json.dumps({"before": before, "after": after, "op": op, "ts_ms": 1}).encode()


def test_keys_may_be_written_otherwise_than_values() -> None:
    given = forms("id", keyFormat="json", keySchema="id bigint, more string")
    assert given.rows is not None
    assert given.rows.key is given.columns[0]
    for schema in ("id int", "other bigint"):
        with pytest.raises(KeyrangeError, match=r"'keyFormat' reads keys as .* id of type int64"):
            forms("id", keyFormat="json", keySchema=schema)
    with pytest.raises(KeyrangeError, match="'keyFormat' reads keys as string"):
        forms("id", keyFormat="string")


def read(
    *records: tuple[Any, bytes | None], keys: tuple[str, ...] = ("id",)
) -> tuple[list[Any], dict[int, str]]:
    """What is read of records, by a key as JSON or bytes and a value."""
    own = forms(*keys)
    texts = [key if isinstance(key, bytes) else json.dumps(key).encode() for key, _ in records]
    columns = {
        "key": pa.array(texts, pa.binary()),
        "value": pa.array([value for _, value in records], pa.binary()),
    }
    found, why = ValueReader(own, None).read(pa.record_batch(columns))  # type: ignore[arg-type]
    column = found.column("value")
    column.validate(full=True)
    assert column.type == types_of(own, {"value": pa.binary()})["value"]
    return column.to_pylist(), dict(why)


def row(id: Any, name: Any = None, region: Any = None, **more: Any) -> dict[str, Any]:
    said = {"id": id, "region": region, "name": name, DELETED: False, KEPT: None}
    return said | {DELETED if each == "deleted" else KEPT: value for each, value in more.items()}


def test_the_row_after_a_change_or_the_key_that_it_deletes() -> None:
    key = {"id": 7}
    wrapped = {"schema": {"type": "struct", "fields": []}, "payload": key}
    found, why = read(
        (key, change("c", None, {"id": 7, "name": "a", "region": "n"})),
        (key, change("r", None, {"id": 7, "name": "b"})),
        (key, change("u", {"id": 7, "name": "b"}, {"id": 7, "name": "c"})),
        (key, change("d", {"id": 7, "name": "c"})),
        (key, None),
        (wrapped, change("d")),
        (wrapped, None),
        (b"not read, as the change says its key", change("d", {"id": 8})),
    )
    assert why == {}
    assert found == [
        row(7, "a", "n"),
        row(7, "b"),
        row(7, "c"),
        *[row(7, deleted=True)] * 4,
        row(8, deleted=True),
    ]


def test_keys_that_are_in_the_change_in_part() -> None:
    key = {"id": 7, "region": "n"}
    before = {"id": 7, "region": None, "name": None}
    found, why = read((key, change("d", before)), (key, None), keys=("region", "id"))
    assert why == {}
    assert found == [row(7, region="n", deleted=True)] * 2


@pytest.mark.parametrize(
    ("record", "keys", "text"),
    [
        (({}, change("t")), ("id",), "op t empties the captured table.*skipped.operations=t"),
        (({}, change("m")), ("id",), "op m is a message to the database's log"),
        (({}, change("x")), ("id",), "op is none of c, u, r, d, t and m"),
        (({}, change("u", {"id": 1})), ("id",), "a change without the row after it"),
        (({"no": 1}, None), ("id",), "neither the change nor the key of its record says id"),
        ((b"Struct{id=1}", None), ("id",), r"says id, .*table \(key: not JSON\)\. Name the col"),
        (({"id": 1}, change("d", {"id": 1})), ("region",), "says region, .*FULL"),
        (
            ({"id": 1}, change("u", {"id": 1, "region": "n"}, {"id": 1, "region": "s"})),
            ("region",),
            "an update of region, which is a key of the table and none of the captured one",
        ),
        (
            ({"id": 1}, change("u", None, {"id": 1, "region": "s"})),
            ("id", "region"),
            "an update that does not say region of the row before it, which is a key .*FULL",
        ),
        (({}, b"{}"), ("id",), "no envelope of Debezium"),
    ],
)
def test_what_is_no_row_of_a_key(record: Any, keys: tuple[str, ...], text: str) -> None:
    good = ({"id": 1}, change("c", None, {"id": 1, "region": "n"}))
    found, why = read(good, record, good, keys=keys)
    assert [*why] == [1]
    assert re.search(text, why[1]), why
    assert found == [row(1, region="n"), None, row(1, region="n")]


def test_updates_without_the_row_before_them() -> None:
    """Postgres tells the row before an update with REPLICA IDENTITY FULL alone."""
    key, after = {"id": 7, "region": "n"}, {"id": 7, "region": "n", "name": "a"}
    of_both = [(key, change("u", None, after))] * 2
    found, why = read(*of_both, keys=("id", "region"))
    assert (why, found) == ({}, [row(7, "a", "n")] * 2)
    # Of three updates the keys of two do not say what the row's region was.
    bare = {"id": 7}, change("u", None, after)
    found, why = read(bare, of_both[0], bare, keys=("id", "region"))
    assert ([*why], found) == ([0, 2], [None, row(7, "a", "n"), None])
    # Nor is it known of a key in other words.
    found, why = read((b"Struct{id=7}", change("u", None, after)), keys=("id", "region"))
    assert (why, found) == ({}, [row(7, "a", "n")])


def test_a_value_that_was_not_told_is_left_as_it_is() -> None:
    gone = {"id": 1, "name": UNAVAILABLE, "region": UNAVAILABLE}
    found, why = read(({"id": 1}, change("u", None, gone)), ({}, change("d", gone)))
    assert why == {}
    assert found[0] == row(1, UNAVAILABLE, UNAVAILABLE, kept=["region", "name"])
    assert (found[1]["id"], found[1][DELETED], found[1][KEPT]) == (1, True, None)
    # A key is never left as it is: it is that of the record.
    found, why = read(({"region": "n"}, change("u", None, gone)), keys=("region",))
    assert (found[0]["region"], found[0][KEPT]) == ("n", ["name"])


DATA = UNAVAILABLE.encode()


@pytest.mark.parametrize(
    ("kind", "placeholder", "others"),
    [
        (pa.string(), UNAVAILABLE, ["", f"{UNAVAILABLE}!"]),
        (pa.string(), "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", ["X19k"]),
        (pa.string(), DATA.hex(), [DATA.hex().upper()]),
        (pa.string(), f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}', ["{}"]),
        (pa.binary(), DATA, [b"", DATA[:-1]]),
        (pa.list_(pa.string()), [UNAVAILABLE], [[], [None], [UNAVAILABLE, "a"]]),
        (pa.list_(pa.string()), ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"], [["x"]]),
        (pa.list_(pa.binary()), [DATA], [[b""]]),
        (pa.list_(pa.int32()), [*DATA], [[1], [*DATA[:-1], 0]]),
        (pa.list_(pa.int64()), [*DATA], [[*DATA, 1]]),
        (
            pa.map_(pa.string(), pa.string()),
            [(UNAVAILABLE, UNAVAILABLE)],
            [[], [(UNAVAILABLE, None)], [(UNAVAILABLE, UNAVAILABLE), ("a", "b")]],
        ),
        (
            pa.struct([("x", pa.float64()), ("y", pa.float64()), ("wkb", pa.binary())]),
            {"x": -99999999.0, "y": -99999999.0},
            [{"x": -99999999.0, "y": 0}],
        ),
        (
            pa.struct([("wkb", pa.binary()), ("srid", pa.int32())]),
            {"wkb": bytes.fromhex("0101000020e6100000000000fc83d797c1000000fc83d797c1")},
            [{"wkb": b""}],
        ),
        (pa.int64(), None, [1]),
    ],
)
def test_what_stands_for_a_value_by_its_type(
    kind: pa.DataType, placeholder: Any, others: list[Any]
) -> None:
    values = [placeholder, None, *others, placeholder]
    told = [0, len(values) - 1] if placeholder is not None else []
    column = pa.array([others[0], *values], kind)
    for each in (pa.array(values, kind), column.slice(1)):
        assert are_unavailable(each).nonzero()[0].tolist() == told


@pytest.mark.parametrize("bad", ["null", "column"])
def test_bad_changes_have_no_row(bad: str) -> None:
    with pytest.raises(KeyrangeError, match=f"'badValues' is {bad}, and what cannot be read"):
        forms("id", badValues=bad)


@pytest.mark.parametrize("value", [change("t"), b"{}", b"{"])
def test_the_remedy_of_a_bad_change_is_one_that_a_table_with_keys_takes(value: bytes) -> None:
    columns: dict[str, Any] = {
        "key": pa.array([b"{}"], pa.binary()),
        "value": pa.array([value], pa.binary()),
        "topic": ["t"],
        "partition": [0],
        "offset": [7],
    }
    batch = pa.RecordBatch.from_pydict(columns)
    changes = value_forms(parse_options(REQUIRED | {"valueSchema": DDL}, "stream"))
    for own, condition in ((forms("id"), "BAD_CHANGE"), (changes, "BAD_VALUE")):
        if condition == "BAD_VALUE" and value == change("t"):
            continue
        reader = ValueReader(own, None)  # type: ignore[arg-type]
        with pytest.raises(KeyrangeError, match=rf"^\[{condition}\] .*offset=7") as raised:
            reader.read_all(batch)
        remedy = raised.value.condition.remedy
        assert ("badValues=null" in remedy) is (condition == "BAD_VALUE")
        assert "'valueFormat'" in remedy
        assert "badValues=deadLetter" in remedy
