"""The compiled pass over Avro values and the reading of one value by itself agree."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.formats.avro import rows as avro_rows
from keyrange.formats.avro.decoder import AvroDecoder
from keyrange.formats.format import format_of
from keyrange.formats.payloads import Payloads
from keyrange.model.value_forms import ReadSettings
from project.forms import by_form
from samples.avro_samples import AvroSamples
from samples.value_trials import comparable, damaged


def alone(decoder: AvroDecoder, payload: bytes) -> tuple[Any, str | None]:
    try:
        return avro_rows.read_row(payload, decoder.action)[0], None
    except avro_rows.BadValue as failure:
        return None, str(failure)


def test_what_the_pass_reads_is_what_a_row_is_by_itself() -> None:
    chance = Random(3)
    samples = AvroSamples()
    for _ in range(by_form(15, 60, 2_000)):
        trial = samples.trial(chance, 20)
        decoder = format_of("avro").decoder(trial.reader, trial.writer, ReadSettings())
        assert isinstance(decoder, AvroDecoder)
        payloads = [*trial.payloads, *(damaged(each, chance) for each in trial.payloads)]
        values, errors = zip(*(alone(decoder, each) for each in payloads), strict=True)
        found = decoder.read(Payloads.of(pa.array(payloads, pa.binary())))
        assert [*found.bad] == np.flatnonzero([each is not None for each in errors]).tolist()
        assert [*found.bad.values()] == [each for each in errors if each is not None]
        assert comparable(found.column) == comparable(pa.array(values, decoder.type))


def test_what_fits_no_field_of_the_reader_is_rescued() -> None:
    """Of two schemas that nobody made for each other nothing is bad, but for what is no record."""
    chance = Random(4)
    samples = AvroSamples()
    left_over = 0
    for _ in range(by_form(15, 60, 2_000)):
        wrote, other = samples.trial(chance, 20), samples.trial(chance, 0)
        if not all("fields" in json.loads(each.text) for each in (wrote.writer, other.reader)):
            continue
        settings = ReadSettings(rescues=True)
        decoder = format_of("avro").decoder(other.reader, wrote.writer, settings)
        assert isinstance(decoder, AvroDecoder)
        found = decoder.read(Payloads.of(pa.array(wrote.payloads, pa.binary())))
        assert found.bad == {}
        assert found.rescued is not None
        rows = [avro_rows.read_row(each, decoder.action, rescues=True) for each in wrote.payloads]
        assert comparable(found.column) == comparable(
            pa.array([value for value, _ in rows], decoder.type)
        )
        told = [each and json.loads(each) for each in found.rescued.to_pylist()]
        assert told == [left for _, left in rows]
        left_over += sum(each is not None for each in told)
    assert left_over
