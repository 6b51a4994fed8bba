"""When a value of a key is gone whose time to live is over."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.keyed_state.variables import StateForm


def alive(batch: pa.RecordBatch, form: StateForm, time_ms: int) -> pa.RecordBatch:
    """Rows without what has expired: a value is there before its time, and not at it."""
    for variable in form.variables:
        if not variable.ttl_ms:
            continue
        ends = batch.column(variable.expires)
        is_over = pc.fill_null(pc.less_equal(ends, time_ms), False)
        if pc.any(is_over).as_py():
            mask = is_over.to_numpy(zero_copy_only=False)
            rows = pa.array(np.arange(batch.num_rows), mask=mask)
            for name in (variable.name, variable.expires):
                batch = form.with_column(batch, name, batch.column(name).take(rows))
    return batch


def with_state(batch: pa.RecordBatch, form: StateForm, time_ms: int) -> pa.RecordBatch:
    """Rows of keys that have any state, without what has expired."""
    batch = alive(batch, form, time_ms)
    is_there = np.zeros(batch.num_rows, bool)
    for name in form.names:
        is_there |= batch.column(name).is_valid().to_numpy(zero_copy_only=False)
    return batch if is_there.all() else batch.filter(pa.array(is_there))
