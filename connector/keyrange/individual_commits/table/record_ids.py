"""Which records a Delta table holds, read by delta-rs: topic, partition and offset of each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keyrange.errors import KeyrangeError, error, invalid_options
from keyrange.model.offsets import TopicPartition
from keyrange.storage.failure_text import text_of

if TYPE_CHECKING:
    import pyarrow as pa

Offsets = np.ndarray[Any, np.dtype[np.int64]]


def read_record_ids(
    path: str,
    columns: Sequence[str],
    storage: Mapping[str, str],
    told: Callable[[int], None] = lambda _: None,
) -> dict[TopicPartition, Offsets]:
    """The offsets of each partition, in order; an offset that is there twice is there twice.

    `columns` name topic, partition and offset; `told` is called with how many more rows were read.
    Raises INVALID_OPTIONS where there is no such table,
    or it has no such columns, or a row without one of them, COMMITS_UNREADABLE where the store
    fails.
    """
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table = DeltaTable(path, storage_options=dict(storage))
    except TableNotFoundError:
        raise invalid_options(f"there is no Delta table at {path}") from None
    except (DeltaError, OSError) as failure:
        raise _unreadable(path, failure, storage) from None
    known = [field.name for field in table.schema().fields]
    if missing := [name for name in columns if name not in known]:
        raise invalid_options(
            f"the table at {path} has no column {', '.join(missing)}; it has "
            f"{', '.join(known)}; --columns says by which three a row names its record"
        )
    names = ", ".join('"{}"'.format(name.replace('"', '""')) for name in columns)
    # Identifiers are quoted; nothing of the text is a value.
    query = f"SELECT {names} FROM sink"
    found: dict[TopicPartition, list[Offsets]] = {}
    try:
        rows = QueryBuilder().register("sink", table).execute(query)
        for batch in pa.RecordBatchReader.from_stream(rows):
            _collect(path, columns, batch, found)
            told(batch.num_rows)
    except (DeltaError, OSError, pa.ArrowException) as failure:
        raise _unreadable(path, failure, storage) from None
    return {partition: np.sort(np.concatenate(pieces)) for partition, pieces in found.items()}


def _collect(
    path: str,
    columns: Sequence[str],
    batch: pa.RecordBatch,
    found: dict[TopicPartition, list[Offsets]],
) -> None:
    import pyarrow as pa

    for name, column in zip(columns, batch.columns, strict=True):
        if column.null_count:
            raise invalid_options(f"the table at {path} has rows without {name}")
    try:
        topics = batch.column(0).cast(pa.string()).dictionary_encode()
        numbers = batch.column(1).cast(pa.int32()).to_numpy(zero_copy_only=False)
        offsets = batch.column(2).cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as failure:
        raise invalid_options(
            f"the columns {', '.join(columns)} of the table at {path} hold no ids: {failure}"
        ) from None
    places = np.stack((topics.indices.to_numpy(zero_copy_only=False), numbers))
    own, which = np.unique(places, axis=1, return_inverse=True)
    for at, (index, number) in enumerate(own.T.tolist()):
        partition = TopicPartition(topics.dictionary[index].as_py(), number)
        found.setdefault(partition, []).append(offsets[which.reshape(-1) == at])


def _unreadable(path: str, failure: Exception, storage: Mapping[str, str]) -> KeyrangeError:
    return error("COMMITS_UNREADABLE", text_of(failure, storage), table=path)
