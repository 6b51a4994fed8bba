"""Avro's single-object encoding: bytes C3 01, the fingerprint of the writer's schema, the value.

Nothing forbids a value without a header to begin with the same two bytes, such as a number or a
fixed: what names none of the given schemas is read as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from keyrange.formats.avro.fingerprints import MARKER, fingerprint
from keyrange.formats.avro.schemas import AvroType
from keyrange.formats.grouped_rows import Group, together
from keyrange.formats.payloads import Decoder, Numbers, Payloads, ReadValues

_HEADER_BYTES: Final = 10
_STRANGE: Final = (
    "begins as a value with the fingerprint of its schema does, and that is none of the schemas "
    "that are given; without one"
)


class SingleObjectDecoder:
    """Reads values behind headers by the schemas that these name, the others by the reader's."""

    def __init__(
        self,
        reader: AvroType,
        writers: Sequence[AvroType],
        decoder_of: Callable[[AvroType], Decoder],
        *,
        rescues: bool,
    ) -> None:
        """`decoder_of` makes the decoder of what a schema wrote."""
        self._rescues = rescues
        self._decoder_of = decoder_of
        self._plain = decoder_of(reader)
        self.type: pa.DataType = self._plain.type
        self._writers = {fingerprint(each): each for each in writers}
        self._decoders = {fingerprint(reader): self._plain}

    def read(self, payloads: Payloads) -> ReadValues:
        rows, named = _headers(payloads)
        if not len(rows):
            return self._plain.read(payloads)
        if (named == named[0]).all() and len(rows) == np.count_nonzero(payloads.present):
            decoder = self._decoder(int(named[0]))
            if decoder is not None:
                return decoder.read(payloads.behind(_HEADER_BYTES))
        groups: list[Group] = []
        others = np.ones(len(payloads), np.bool_)
        for each in np.unique(named):
            decoder, at = self._decoder(int(each)), rows[named == each]
            if decoder is not None:
                behind = payloads.take(at).behind(_HEADER_BYTES)
                groups.append(Group(at, decoder.read(behind)))
                others[at] = False
        groups.append(self._without(payloads, np.flatnonzero(others), frozenset(rows.tolist())))
        return together(groups, len(payloads), self.type, self._rescues)

    def _decoder(self, named: int) -> Decoder | None:
        if named not in self._decoders and named in self._writers:
            self._decoders[named] = self._decoder_of(self._writers[named])
        return self._decoders.get(named)

    def _without(self, payloads: Payloads, rows: Numbers, strange: frozenset[int]) -> Group:
        """Rows without a header that names a given schema; `strange` ones begin as with one."""
        values = self._plain.read(payloads.take(rows))
        bad = {
            at: f"{_STRANGE}: {text}" if int(rows[at]) in strange else text
            for at, text in values.bad.items()
        }
        return Group(rows, replace(values, bad=bad))


def _headers(payloads: Payloads) -> tuple[Numbers, np.ndarray]:
    """The rows that begin as with a header, and the fingerprint in each, uint64."""
    data, starts = payloads.data, payloads.starts
    rows = np.flatnonzero(payloads.present & (payloads.ends - starts >= _HEADER_BYTES))
    for at, byte in enumerate(MARKER):
        rows = rows[data[starts[rows] + at] == byte]
    places = starts[rows][:, None] + np.arange(len(MARKER), _HEADER_BYTES)
    return rows, data[places].view("<u8").ravel()
