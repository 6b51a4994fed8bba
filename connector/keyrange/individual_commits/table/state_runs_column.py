"""Column `state_runs` of the commit table: where the state of a partition's keys is. Key ranges
have both ends in them, as in all columns that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from keyrange.keyed_state.model.state_runs import StateRun

RUN_TYPE: Final = pa.struct(
    [
        ("file", pa.string()),
        ("first_group", pa.int32()),
        ("until_group", pa.int32()),
        ("lo", pa.int64()),
        ("hi", pa.int64()),
        ("from_seq", pa.int64()),
        ("until_seq", pa.int64()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
    ]
)


def write_runs(runs: Sequence[StateRun]) -> list[dict[str, Any]]:
    """The column of a partition."""
    return [dict(zip(RUN_TYPE.names, run.flat(), strict=True)) for run in runs]


def read_runs(told: Sequence[Mapping[str, Any]]) -> tuple[StateRun, ...]:
    """What `write_runs` has written. Raises TypeError or ValueError for what cannot be a run."""
    return tuple(StateRun.of_flat(each[name] for name in RUN_TYPE.names) for each in told)
