"""Column `key_ranges` of the commit table: JSON of the ranges that a query reads, null where it
reads whole partitions."""

from __future__ import annotations

import json

from keyrange.ranges.model.query_ranges import Ownership, read_ownership, write_ownership


def write_key_ranges(ownership: Ownership) -> str | None:
    return json.dumps(write_ownership(ownership)) if ownership else None


def read_key_ranges(text: str | None) -> Ownership:
    """Raises ValueError for what `write_key_ranges` has not written."""
    try:
        return {} if text is None else read_ownership(json.loads(text))
    except RecursionError:
        raise ValueError("its key ranges are nested too deep") from None
