"""Keys and values that are texts in UTF-8."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from keyrange.formats.format import Format
from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.model.value_forms import ReadSettings, Schema


class TextDecoder:
    """A payload that is not UTF-8 is a bad one: no character takes the place of its bytes."""

    type = pa.string()

    def read(self, payloads: Payloads) -> ReadValues:
        near = payloads.contiguous()
        bad, present = near.not_utf8(), near.present.copy()
        present[bad] = False
        good = replace(near, present=present).array(pa.string())
        return ReadValues(good, dict.fromkeys(bad, "not UTF-8"))


class _Text(Format):
    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:  # noqa: ARG002
        return pa.string()

    def decoder(
        self,
        reader: Schema,  # noqa: ARG002
        writer: Schema,  # noqa: ARG002
        settings: ReadSettings,  # noqa: ARG002
    ) -> TextDecoder:
        return TextDecoder()


FORMAT = _Text()
