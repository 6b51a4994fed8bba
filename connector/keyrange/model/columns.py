"""The columns of the source, by name: what there is, in which order, and what a read has of it."""

from __future__ import annotations

from typing import Final

from keyrange.text.near_names import did_you_mean, near_names

# Spark's Kafka source has the same, in the same order, but for the last; headers and keyHash are
# there only where asked for.
COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
    "keyHash",
)
USUAL: Final = COLUMNS[:-2]
OFFSET: Final = "offset"
# What tells a record from all others, and where its key belongs.
PLACE: Final = ("topic", "partition", OFFSET)
IDENTIFYING: Final = (*PLACE, "keyHash")
# What a producer has sent, but for the headers.
RECORD: Final = ("key", "value", "timestamp")

_BY_NAME: Final = {name.lower(): name for name in COLUMNS}


def parse_columns(value: str) -> tuple[str, ...]:
    """A comma list of columns, in any order and case, in the source's order and spelling.

    Raises ValueError with a message that begins with "must".
    """
    given = [name.strip() for name in value.split(",")]
    if not any(given):
        raise ValueError(f"must name at least one column of {', '.join(COLUMNS)}")
    chosen: set[str] = set()
    for name in given:
        column = _BY_NAME.get(name.lower())
        if column is None:
            hint = did_you_mean(_BY_NAME[each] for each in near_names(name.lower(), _BY_NAME))
            raise ValueError(f"must name columns of {', '.join(COLUMNS)}, not '{name[:40]}'{hint}")
        if column in chosen:
            raise ValueError(f"must name every column once, but '{column}' is there twice")
        chosen.add(column)
    return tuple(name for name in COLUMNS if name in chosen)


def chosen_columns(
    columns: tuple[str, ...] | None, include_headers: bool, include_key_hash: bool = False
) -> tuple[str, ...]:
    """What a read has: the columns of the list where there is one, else all that are asked for."""
    if columns is not None:
        return columns
    wanted = {*USUAL, *["headers"] * include_headers, *["keyHash"] * include_key_hash}
    return tuple(name for name in COLUMNS if name in wanted)
