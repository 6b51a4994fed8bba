"""The contract of the formats that columns are written in: their reference library reads what was
in the columns, and so does keyrange's own decoder; what is bad is said of its row alone."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from keyrange.formats.format import written_format_of
from keyrange.formats.payloads import Payloads, WrittenValues
from keyrange.model.value_forms import ReadSettings, Schema
from project.forms import by_form, everyday
from samples.avro_samples import AvroSamples
from samples.protobuf_samples import ProtobufSamples
from samples.value_trials import Refused, Samples, Trial, Unsure, comparable

SAMPLES: list[Samples] = [AvroSamples(), ProtobufSamples(json=False)]
# Schemas, and rows of each.
TRIALS, ROWS = by_form((20, 20), (40, 30), (400, 80))
# A value that its decoder makes of what no writer takes.
BAD = ("is no name of enum", "is not within the years")
PREFIX = b"\0\0\0\1\2"

formats = pytest.mark.parametrize("samples", everyday(*SAMPLES), ids=lambda each: each.name)


def readable(samples: Samples, trial: Trial) -> list[Any]:
    found = []
    for payload in trial.payloads:
        try:
            found.append(samples.read(trial, payload))
        except (Refused, Unsure):
            continue
    return found


def written(
    name: str, schema: Schema, column: pa.Array, prefix: bytes = PREFIX
) -> tuple[list[bytes | None], WrittenValues]:
    """The payloads without their prefix."""
    found = written_format_of(name).encoder(column.type, schema, prefix).write(column)
    found.payloads.validate(full=True)
    assert len(found.payloads) == len(column)
    payloads = found.payloads.to_pylist()
    assert all(each is None or each.startswith(prefix) for each in payloads)
    return [each and each[len(prefix) :] for each in payloads], found


def in_the_middle(rows: list[Any], kind: pa.DataType, chance: Random) -> pa.Array:
    """A slice of a column, as a field of another one may be."""
    before, behind = (chance.randrange(min(len(rows), 3) + 1) for _ in range(2))
    whole = pa.array([*rows[:before], *rows, *rows[len(rows) - behind :]], kind)
    return whole.slice(before, len(rows))


def check(samples: Samples, seed: int) -> None:
    chance = Random(seed)
    trial = samples.trial(chance, ROWS)
    format_ = written_format_of(samples.format)
    kind = format_.type_of(trial.reader, ReadSettings())
    rows: list[Any] = [*readable(samples, trial), None]
    chance.shuffle(rows)
    column = in_the_middle(rows, kind, chance)
    payloads, found = written(samples.format, trial.reader, column)
    bad = [*found.bad]
    assert all(any(each in said for each in BAD) for said in found.bad.values()), found.bad
    assert bad == sorted({*bad})
    absent = [at for at, each in enumerate(payloads) if each is None]
    nothing = [at for at, each in enumerate(rows) if each is None]
    assert absent == sorted({*bad, *nothing})
    own = replace(trial, writer=trial.reader)
    again = [None if each is None else samples.read(own, each) for each in payloads]
    wanted = [None if at in bad else each for at, each in enumerate(rows)]
    expected = comparable(pa.array(wanted, kind))
    assert comparable(pa.array(again, kind)) == expected, trial
    decoder = format_.decoder(trial.reader, trial.reader, ReadSettings())
    read = decoder.read(Payloads.of(pa.array(payloads, pa.binary())))
    assert read.bad == {}
    assert comparable(read.column) == expected


@formats
def test_what_is_written_is_read_by_the_reference(samples: Samples) -> None:
    for seed in range(TRIALS):
        check(samples, seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@formats
def test_millions_that_are_written_are_read_by_the_reference(samples: Samples, part: int) -> None:
    first = Random().randrange(2**40)
    for seed in range(first, first + 500):
        check(samples, seed)


@formats
def test_no_rows_and_rows_without_a_value(samples: Samples) -> None:
    chance = Random(3)
    for _ in range(TRIALS):
        trial = samples.trial(chance, 1)
        kind = written_format_of(samples.format).type_of(trial.reader, ReadSettings())
        assert written(samples.format, trial.reader, pa.array([], kind))[0] == []
        assert written(samples.format, trial.reader, pa.nulls(3, kind))[0] == [None] * 3


@formats
def test_rows_are_written_alike_alone_and_among_others(samples: Samples) -> None:
    chance = Random(5)
    for _ in range(TRIALS):
        trial = samples.trial(chance, 10)
        rows = readable(samples, trial)
        kind = written_format_of(samples.format).type_of(trial.reader, ReadSettings())
        column = pa.array(rows, kind)
        together, _ = written(samples.format, trial.reader, column, b"")
        alone = [
            written(samples.format, trial.reader, column.slice(at, 1), b"")[0][0]
            for at in range(len(rows))
        ]
        assert together == alone


def test_what_a_schema_is_derived_from_is_read_again() -> None:
    """Of Avro: by a schema that columns say, what fastavro writes by it is read as they are."""
    samples, format_ = AvroSamples(), written_format_of("avro")
    seen = 0
    for seed in range(TRIALS):
        trial = samples.trial(Random(seed), ROWS)
        kind = format_.type_of(trial.reader, ReadSettings())
        schema = format_.schema_of(kind)
        assert format_.type_of(schema, ReadSettings()) == kind, schema
        rows = readable(samples, trial)
        column = pa.array(rows, kind)
        payloads, found = written("avro", schema, column)
        assert found.bad == {}
        own = Trial(schema, schema, [])
        again = [samples.read(own, each or b"") for each in payloads]
        assert comparable(pa.array(again, kind)) == comparable(column)
        seen += len(rows)
    assert seen > TRIALS


def test_large_rows_among_small_ones() -> None:
    """Where texts and lists make up nearly all of the bytes that memory is taken for."""
    kind = pa.struct([("a", pa.string()), ("b", pa.list_(pa.list_(pa.int64())))])
    sizes = np.random.default_rng(1).integers(0, 3_000, 200).tolist()
    rows = [{"a": "é" * size, "b": [[-(2**63)] * (size // 100)] * 7} for size in sizes]
    schema = written_format_of("avro").schema_of(kind)
    payloads, found = written("avro", schema, pa.array(rows, kind))
    own = Trial(schema, schema, [])
    assert [AvroSamples().read(own, each or b"") for each in payloads] == rows
    assert found.bad == {}
