"""Rows of one batch that several decoders have read, put together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyrange.formats.payloads import Numbers, ReadValues


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Rows of a batch, in order, and what one decoder read of them."""

    rows: Numbers
    values: ReadValues


def together(groups: Sequence[Group], count: int, kind: pa.DataType, rescues: bool) -> ReadValues:
    """The groups' rows in their places among `count`; rows of no group are null."""
    rows = np.concatenate([each.rows for each in groups])
    # Where each row is among the groups', behind which stands one null.
    places = np.full(count, len(rows), np.int64)
    places[rows] = np.arange(len(rows))
    taken = pa.array(places)

    def placed(columns: list[pa.Array], kind: pa.DataType) -> pa.Array:
        return pa.concat_arrays([*columns, pa.nulls(1, kind)]).take(taken)

    bad = {int(each.rows[at]): why for each in groups for at, why in each.values.bad.items()}
    rescued = [each.values.rescued for each in groups]
    return ReadValues(
        placed([each.values.column for each in groups], kind),
        dict(sorted(bad.items())),
        placed(rescued, pa.string()) if rescues else None,
    )
