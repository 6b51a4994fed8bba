"""What differs between two states, and states as documents have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from keyrange.cli.keys import in_json
from keyrange.cli.render import print_table
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.ranges.model.key_ranges import SPACE, KeyRange, split_evenly

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.keyed_state.variables import StateForm

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
    from keyrange.individual_commits.table.keyed_state_rows import plain_rows

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


def state_row(partition: TopicPartition, key: bytes, **states: Any) -> dict[str, Any]:
    """A key as documents have it, with its states by the names that they give them."""
    told = {name: jsonable(state) for name, state in states.items()}
    return {**partition._asdict(), "key": in_json(key), **told}


def print_states(rows: Sequence[Mapping[str, Any]], **titles: str) -> None:
    """A line for each row of `state_row`; `titles` of the columns of its states."""
    shown = [
        [
            f"{row['topic']}-{row['partition']}",
            str(row["key"]),
            *("none" if row[each] is None else str(row[each]) for each in titles),
        ]
        for row in rows
    ]
    print_table("Keys", ["partition", "key", *titles.values()], shown)


def jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return in_json(value)
    if isinstance(value, dict):
        return {name: jsonable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
