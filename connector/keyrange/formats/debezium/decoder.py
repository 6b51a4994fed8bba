"""Debezium's envelopes: Kafka Connect's documents of one form."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from keyrange.formats.connect.decoder import null_where_bad
from keyrange.formats.payloads import Decoder, Payloads, ReadValues

_NO_ENVELOPE: Final = "no envelope of Debezium: it has no op"


class EnvelopeDecoder:
    """What a decoder of Kafka Connect's documents reads as envelopes."""

    def __init__(self, documents: Decoder) -> None:
        self._documents = documents
        self.type: pa.StructType = documents.type

    def read(self, payloads: Payloads) -> ReadValues:
        """A row without a payload, or with a bad one, is null."""
        found = self._documents.read(payloads)
        lacking = payloads.present & found.column.field("op").is_null().to_numpy(
            zero_copy_only=False
        )
        why = {int(row): _NO_ENVELOPE for row in np.flatnonzero(lacking)}
        why |= found.bad
        return null_where_bad(found.column, why, found.rescued)
