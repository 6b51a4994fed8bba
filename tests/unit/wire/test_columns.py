"""What is left out of a read is not made: no gather, no pass over headers, no buffer."""

from __future__ import annotations

from typing import Any

import pytest

from keyrange.model.columns import COLUMNS
from keyrange.wire import columns as module
from keyrange.wire import record_kernels
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk
from samples.strategies import Batch, Record, array, encode_batch

RECORDS = tuple(Record(n, n, b"key", b"value", (("h", b"1"),)) for n in range(5))
# What is made for a column: compiled passes, and buffers for its ends, bytes, bitmap or numbers.
BUFFERS = {"key": 3, "value": 3, "offset": 1, "timestamp": 1, "timestampType": 1, "headers": 6}
BUFFERS |= {"keyHash": 1}
PASSES = {
    "key": ["gather_bytes"],
    "value": ["gather_bytes"],
    "headers": ["index_headers", "gather_header_bytes", "gather_header_bytes"],
}


@pytest.mark.parametrize("chosen", [*[(name,) for name in COLUMNS], COLUMNS[2:7], COLUMNS])
def test_only_what_is_chosen_is_made(
    chosen: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[str] = []
    buffers: list[Any] = []

    def counted(name: str) -> Any:
        compiled = getattr(record_kernels, name)
        return lambda *given: (passes.append(name), compiled(*given))[1]

    for name in ("gather_numbers", *{each for made in PASSES.values() for each in made}):
        monkeypatch.setattr(record_kernels, name, counted(name))
    allocate = module._allocate
    monkeypatch.setattr(
        module, "_allocate", lambda *given: (buffers.append(given), allocate(*given))[1]
    )
    chunk = scan_chunk(array(encode_batch(Batch(0, RECORDS))), "t", 0, 0)

    [batch] = Decoder("t", 0, DecodeSettings(chosen)).decode(chunk, 0, 5)

    assert batch.schema.names == list(chosen)
    assert len(buffers) == sum(BUFFERS.get(name, 0) for name in chosen)
    numbers = ["gather_numbers"] if {"offset", "timestamp", "timestampType"} <= {*chosen} else []
    assert sorted(passes) == sorted(
        numbers + [each for name in chosen for each in PASSES.get(name, [])]
    )
