"""The contract of the formats of values: each reads what its reference library reads, or says that
a payload is bad; and nothing that stands beside a payload has a say in it."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from keyrange.formats.format import format_of
from keyrange.formats.payloads import Decoder, Payloads, ReadValues
from keyrange.model.value_forms import ReadSettings
from project.forms import by_form, everyday
from samples.avro_samples import AvroSamples, SingleObjectSamples
from samples.connect_samples import ConnectAvroSamples, ConnectSamples, DebeziumSamples, TextSamples
from samples.json_samples import JsonSamples
from samples.protobuf_samples import ProtobufSamples
from samples.value_trials import Refused, Samples, Trial, Unsure, comparable, damaged

SAMPLES: list[Samples] = [
    AvroSamples(),
    SingleObjectSamples(),
    ProtobufSamples(),
    JsonSamples(),
    ConnectSamples(),
    ConnectAvroSamples(),
    DebeziumSamples(),
    TextSamples(),
]
# Pairs of schemas, and payloads of each.
TRIALS, PAYLOADS = by_form((20, 20), (30, 30), (80, 40))

formats = pytest.mark.parametrize("samples", everyday(*SAMPLES), ids=lambda each: each.name)


def decoder_of(samples: Samples, trial: Trial, rescues: bool = False) -> Decoder:
    format_, settings = format_of(samples.format), ReadSettings(rescues=rescues)
    if samples.names_writers:
        return format_.unframed_decoder(trial.reader, [trial.writer], settings)
    return format_.decoder(trial.reader, trial.writer, settings)


def in_a_buffer(payloads: list[bytes | None], chance: Random) -> Payloads:
    """With bytes of chance around each."""
    data = bytearray()
    places: list[tuple[int, int]] = []
    for each in payloads:
        data += chance.randbytes(chance.randrange(12))
        places.append((len(data), len(data) + len(each or b"")))
        data += each or b""
    data += chance.randbytes(chance.randrange(12))
    starts, ends = np.array(places, np.int32).reshape(-1, 2).T.copy()
    present = np.array([each is not None for each in payloads], np.bool_)
    return Payloads(np.frombuffer(bytes(data), np.uint8), starts, ends, present)


def read(decoder: Decoder, payloads: list[bytes | None], chance: Random) -> ReadValues:
    values = decoder.read(in_a_buffer(payloads, chance))
    values.column.validate(full=True)
    assert values.column.type == decoder.type
    assert len(values.column) == len(payloads)
    bad = [*values.bad]
    assert bad == sorted(set(bad))
    null = np.flatnonzero([each is None for each in payloads]).tolist()
    assert all(not values.column[row].is_valid for row in (*bad, *null))
    return values


def check(samples: Samples, seed: int, count: int) -> None:
    chance = Random(seed)
    trial = samples.trial(chance, count)
    decoder = decoder_of(samples, trial)
    whole: list[bytes | None] = list(trial.payloads)
    payloads = [*whole, *trial.doubtful, *(damaged(each or b"", chance) for each in whole), None]
    chance.shuffle(payloads)
    found = read(decoder, payloads, chance)
    errors = found.bad
    expected: list[Any] = []
    unsure: set[int] = set()
    for row, payload in enumerate(payloads):
        value = None
        try:
            value = None if payload is None else samples.read(trial, payload)
        except Refused:
            assert row in errors, (trial, payload)
        except Unsure:
            unsure.add(row)
        else:
            said = errors.get(row)
            assert said is None or samples.is_stricter(said), (said, trial, payload)
        expected.append(None if row in errors else value)
    wanted = comparable(pa.array(expected, decoder.type))
    for row, (ours, theirs) in enumerate(zip(comparable(found.column), wanted, strict=True)):
        assert ours == theirs or row in unsure, (trial, payloads[row])
    # Each alone, with other bytes around it, and by the same decoder.
    for row in chance.sample(range(len(payloads)), min(len(payloads), 5)):
        alone = read(decoder, [payloads[row]], chance)
        assert comparable(alone.column) == comparable(found.column.slice(row, 1).take([0]))
        assert [*alone.bad.values()] == ([errors[row]] if row in errors else [])


@formats
def test_a_format_reads_as_its_reference_does(samples: Samples) -> None:
    for seed in range(TRIALS):
        check(samples, seed, PAYLOADS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@formats
def test_a_format_reads_millions_as_its_reference_does(samples: Samples, part: int) -> None:
    first = Random().randrange(2**40)
    for seed in range(first, first + 500):
        check(samples, seed, 250)


@formats
def test_whole_payloads_are_all_good(samples: Samples) -> None:
    chance = Random(7)
    for _ in range(TRIALS):
        trial = samples.trial(chance, 20)
        found = read(decoder_of(samples, trial), list(trial.payloads), chance)
        assert found.bad == {}, trial


@formats
def test_who_rescues_reads_the_same_of_what_fits(samples: Samples) -> None:
    chance = Random(13)
    for _ in range(TRIALS):
        trial = samples.trial(chance, PAYLOADS)
        payloads = [*trial.payloads, *(damaged(each, chance) for each in trial.payloads)]
        plain = read(decoder_of(samples, trial), list(payloads), chance)
        found = read(decoder_of(samples, trial, rescues=True), list(payloads), chance)
        assert found.bad.keys() <= plain.bad.keys()
        columns = zip(comparable(plain.column), comparable(found.column), strict=True)
        for row, (ours, theirs) in enumerate(columns):
            assert ours == theirs or row in plain.bad, (trial, payloads[row])


@formats
def test_no_rows_and_rows_of_chance(samples: Samples) -> None:
    chance = Random(11)
    for _ in range(TRIALS):
        decoder = decoder_of(samples, samples.trial(chance, 1))
        read(decoder, [], chance)
        read(decoder, [chance.randbytes(chance.randrange(40)) for _ in range(20)], chance)
