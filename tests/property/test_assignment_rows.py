"""The stored form of assignments and commands: round trips, and no damage that is read."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table.commit_schema import MS_MAX
from keyrange.members.model.assignment import Assignment, Owned
from keyrange.members.table.assignment_schema import (
    SCHEMA,
    Command,
    Stored,
    StoredMember,
    read_rows,
    rows_of,
    same,
)
from keyrange.model.key_ranges import HASH_MAX, KeyRange
from keyrange.model.offsets import PARTITION_MAX, TopicPartition
from samples import strategies
from samples.member_samples import command, stored

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.text("abc-019.", min_size=1, max_size=8)
TIMES = st.integers(0, MS_MAX) | st.sampled_from([0, 2**31, MS_MAX])
NUMBERS = st.integers(1, 2**63 - 1) | st.just(2**63 - 1)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | TEXT
    | st.floats(allow_nan=False).filter(lambda value: abs(value) != float("inf")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def assignments(draw: st.DrawFn) -> Assignment:
    partitions = st.builds(
        TopicPartition, NAMES, st.integers(0, 5) | st.sampled_from([PARTITION_MAX])
    )
    owners = {}
    for partition in draw(st.sets(partitions, max_size=4)):
        cuts = sorted(draw(st.sets(st.integers(1, HASH_MAX) | st.just(HASH_MAX), max_size=3)))
        bounds = [0, *cuts, HASH_MAX + 1]
        slots = draw(st.lists(NAMES, min_size=len(bounds) - 1, max_size=len(bounds) - 1))
        # Neighbours of one slot are one range.
        slots = [f"{slot}{at % 2}" for at, slot in enumerate(slots)]
        owners[partition] = tuple(
            Owned(KeyRange(lo, hi), slot)
            for lo, hi, slot in zip(bounds, bounds[1:], slots, strict=False)
        )
    return Assignment(draw(st.integers(1, 2**53)), owners)


MEMBERS = st.builds(
    StoredMember,
    name=TEXT,
    slot=TEXT,
    is_static=st.booleans(),
    state=TEXT,
    since_ms=st.integers(),
    seen_ms=st.integers(),
    host=TEXT,
    executor=TEXT,
    cores=st.floats(0.1, 1e6),
    source=TEXT,
)
STORED = st.builds(
    Stored,
    seq=NUMBERS,
    group=TEXT,
    run_id=TEXT,
    at_ms=TIMES,
    reason=TEXT,
    assignment=st.none() | assignments(),
    membership=st.dictionaries(TEXT, JSON, max_size=3),
    members=st.lists(MEMBERS, max_size=3).map(tuple),
    member_group=TEXT,
    commands_until=st.integers(0, 2**63 - 1),
)
COMMANDS = st.builds(
    Command,
    group=TEXT,
    run_id=TEXT,
    action=st.just("remove"),
    name=TEXT.filter(bool),
    at_ms=TIMES,
    who=TEXT,
    why=TEXT,
    number=NUMBERS,
) | st.builds(
    Command,
    group=TEXT,
    run_id=TEXT,
    action=st.just("rebalance"),
    at_ms=TIMES,
    who=TEXT,
    why=TEXT,
    number=NUMBERS,
)


def altered(row: Stored | Command, **values: Any) -> pa.Table:
    [found] = rows_of(row).to_pylist()
    return pa.Table.from_pylist([found | values], SCHEMA)


def refused(rows: pa.Table) -> str:
    with pytest.raises(KeyrangeError) as raised:
        read_rows(rows, "t")
    return raised.value.condition.name


def sealed(row: Stored | Command, text: str) -> pa.Table:
    """With a checksum that matches: what only its content can give away."""
    return altered(row, document=text, crc=strategies.crc32c(text.encode()))


@given(row=STORED | COMMANDS)
def test_a_row_comes_back(row: Stored | Command) -> None:
    [found] = read_rows(rows_of(row), "t")
    assert found == row
    assert same(found, row)


@given(rows=st.lists(STORED | COMMANDS, max_size=4))
def test_rows_come_back_together(rows: list[Stored | Command]) -> None:
    tables = [rows_of(each) for each in rows]
    assert read_rows(pa.concat_tables([SCHEMA.empty_table(), *tables]), "t") == rows


@given(row=STORED | COMMANDS, data=st.data())
def test_damage_at_any_byte_is_refused(row: Stored | Command, data: st.DataObject) -> None:
    [text] = rows_of(row).column("document").to_pylist()
    content = bytearray(text.encode())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 127))
    try:
        damaged = content.decode()
    except UnicodeDecodeError:
        # Such a column is refused by Delta and by pyarrow.
        return
    assert refused(altered(row, document=damaged)) == "ASSIGNMENT_DAMAGED"


@given(row=STORED | COMMANDS, data=st.data())
def test_what_is_cut_off_is_refused_also_with_a_checksum(
    row: Stored | Command, data: st.DataObject
) -> None:
    [text] = rows_of(row).column("document").to_pylist()
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    assert refused(altered(row, document=cut)) == "ASSIGNMENT_DAMAGED"
    assert refused(sealed(row, cut)) == "ASSIGNMENT_DAMAGED"


@given(row=STORED | COMMANDS, data=st.data())
def test_no_part_of_a_document_may_be_another_thing(
    row: Stored | Command, data: st.DataObject
) -> None:
    """Whatever is in its place, nothing but a row or an error of the catalogue comes out."""
    document = json.loads(rows_of(row).column("document").to_pylist()[0])
    document[data.draw(st.sampled_from(sorted(document)))] = data.draw(JSON)
    named = {"ASSIGNMENT_DAMAGED", "UNSUPPORTED_ASSIGNMENT"}
    found: list[Stored | Command] = []
    refusal = ""
    try:
        found = read_rows(sealed(row, json.dumps(document)), "t")
    except KeyrangeError as failure:
        refusal = failure.condition.name
    assert refusal in named or read_rows(rows_of(found[0]), "t") == found


@pytest.mark.parametrize("row", [stored(7, 3), command("remove", "a", number=3)])
def test_every_byte_of_a_document_counts(row: Stored | Command) -> None:
    [text] = rows_of(row).column("document").to_pylist()
    for at in range(len(text)):
        other = "x" if text[at] != "x" else "y"
        damaged = text[:at] + other + text[at + 1 :]
        assert refused(altered(row, document=damaged)) == "ASSIGNMENT_DAMAGED"


@pytest.mark.parametrize("row", [stored(7, 3), command("remove", "a", number=3)])
@pytest.mark.parametrize("name", SCHEMA.names)
def test_every_column_counts(row: Stored | Command, name: str) -> None:
    [value] = rows_of(row).column(name).to_pylist()
    is_text = pa.types.is_string(SCHEMA.field(name).type)
    for other in {None, "x" if is_text else 4} - {value}:
        assert refused(altered(row, **{name: other})) == "ASSIGNMENT_DAMAGED"


@pytest.mark.parametrize("row", [stored(7, 3), command(number=3)])
@pytest.mark.parametrize("version", [3, 999])
def test_a_newer_version_is_said_to_be_one(row: Stored | Command, version: int) -> None:
    document = json.loads(rows_of(row).column("document").to_pylist()[0])
    text = json.dumps({**document, "v": version, "shape": "of tomorrow"})
    assert refused(sealed(row, text)) == "UNSUPPORTED_ASSIGNMENT"


@pytest.mark.parametrize(
    "row",
    [
        stored(0),
        stored(2**63),
        stored(1, at_ms=-1),
        stored(1, at_ms=MS_MAX + 1),
        stored(1, reason=7),
        stored(1, commands_until=True),
        stored(1, membership={"load": float("nan")}),
        stored(1, membership={"load": float("inf")}),
        stored(1, reason="\udce9"),
        command(),
    ],
)
def test_what_could_not_be_read_again_is_not_written(row: Stored | Command) -> None:
    with pytest.raises((ValueError, TypeError)):
        rows_of(row)
