"""What differs between two states, and states as documents have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from keyrange.cli.keys import in_json

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.kafka.model.offsets import TopicPartition
    from keyrange.keyed_state.variables import StateForm
    from keyrange.ranges.model.key_ranges import KeyRange

_SPANS: Final = 64


class States(Protocol):
    """States of keys, in the order of their hashes."""

    @property
    def form(self) -> StateForm: ...

    def rows(self, partition: TopicPartition, span: KeyRange) -> Iterator[pa.RecordBatch]: ...


def differences(
    before: States, after: States, partition: TopicPartition
) -> Iterator[tuple[bytes, Any, Any]]:
    """Key by key; a part of the keys is in memory at once."""
    from keyrange.individual_commits.table.stored_state import plain_rows
    from keyrange.ranges.model.key_ranges import SPACE, split_evenly

    for span in split_evenly(SPACE, _SPANS):
        was, is_now = (
            dict(
                pair
                for block in state.rows(partition, span)
                for pair in plain_rows(block, state.form)
            )
            for state in (before, after)
        )
        for key in sorted(was.keys() | is_now.keys()):
            if was.get(key) != is_now.get(key):
                yield key, was.get(key), is_now.get(key)


def jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return in_json(value)
    if isinstance(value, dict):
        return {name: jsonable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
