"""Column `state_runs` of the commit table: where the state of a partition's keys is. Key ranges
have both ends in them, as in all columns that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from keyrange.keyed_state.model.runs import StateRun

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


def write_run(run: StateRun) -> dict[str, Any]:
    return dict(zip(RUN_TYPE.names, run.flat(), strict=True))


def read_run(told: Mapping[str, Any]) -> StateRun:
    """Raises TypeError or ValueError for what cannot be one."""
    return StateRun.of_flat(told[name] for name in RUN_TYPE.names)


def write_runs(runs: Sequence[StateRun] | None) -> list[dict[str, Any]] | None:
    """The column of a partition; None where no state is kept."""
    return None if runs is None else [write_run(run) for run in runs]


def read_runs(told: Sequence[Mapping[str, Any]] | None) -> tuple[StateRun, ...] | None:
    """What `write_runs` has written. Raises as `read_run`."""
    return None if told is None else tuple(map(read_run, told))
