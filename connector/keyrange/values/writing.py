"""Columns as keys and values of records, written as their forms say."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from keyrange.formats.format import written_format_of
from keyrange.model.value_forms import WrittenForm

if TYPE_CHECKING:
    from keyrange.formats.payloads import Encoder


# A job's batches ask again and again.
@lru_cache(maxsize=64)
def encoder_of(form: WrittenForm, kind: pa.DataType) -> Encoder:
    """Writes columns of a type. Raises UnfitSchema where the schema does not take them."""
    return written_format_of(form.format).encoder(kind, form.schema, form.prefix)
