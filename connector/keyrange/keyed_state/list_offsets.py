"""Lists of Arrow whose items say which row they are of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def offsets_of(owners: NDArray[np.int64], count: int) -> pa.Array:
    """Where the lists of `count` rows begin and end, of items that say their rows and are in the
    order of these; a row that has none is null."""
    counts = np.bincount(owners, minlength=count)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.array(offsets, mask=np.append(counts == 0, False))
