"""Logs of the strategies as the decoder is given them, and where their rows lie in key ranges."""

from __future__ import annotations

import mmh3
from hypothesis import settings as limits

from keyrange.wire.chunk_decoder import Chunk, DecodeSettings, scan_chunk
from keyrange.wire.fetch_response import AbortedTransaction
from samples.strategies import Log, Row, array

# Each example decodes a log several times.
FEWER = limits(max_examples=limits().max_examples // 2)


def place_of(row: Row, settings: DecodeSettings) -> int:
    """Of a row's key, by mmh3 itself."""
    if row.key is None and settings.selection.nulls_first:
        return 0
    key = row.offset.to_bytes(8, "big") if row.key is None else row.key
    return int(mmh3.hash64(key, 0, signed=False)[0]) >> 1


def scanned(log: Log, committed: bool) -> Chunk:
    """A whole log; without its aborted records where only `committed` ones are read."""
    aborted = [AbortedTransaction(*entry) for entry in log.aborted] if committed else ()
    return scan_chunk(array(log.encode()), "t", 1, log.start, aborted)
