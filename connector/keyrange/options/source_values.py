"""Parsers of the source's own option values: topics, partitions, positions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from keyrange.errors import InvalidError
from keyrange.model.checkpoint import read_partitions, read_positions
from keyrange.model.ddl import parse_ddl
from keyrange.model.offsets import EARLIEST, LATEST, TopicPartition, topic_name_fault
from keyrange.model.position_options import Everywhere, GroupOffsets, Offsets
from keyrange.options.value_parsers import NAME_BYTES_MAX, json_document, name_up_to, takes

OFFSETS_TEXT = 'earliest, latest, or JSON {"topic": {"0": 23, "1": -2}} (-2 earliest, -1 latest)'
ENDS_TEXT = 'latest, or JSON {"topic": {"0": 23, "1": -1}} (-1 latest)'
TIMESTAMPS_TEXT = 'JSON {"topic": {"0": 1750000000000}}, ms since 1970'

_T = TypeVar("_T")
_KEYWORDS = {"earliest": EARLIEST, "latest": LATEST}


def schema(value: str) -> str:
    """DDL, as Spark's JSON of the schema."""
    return json.dumps(parse_ddl(value))


def topics(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(filter(None, (part.strip() for part in value.split(",")))))
    if not names:
        raise ValueError("must name at least one topic: no topics to subscribe to")
    for name in names:
        if fault := topic_name_fault(name):
            raise ValueError(f"must hold names of topics, and {fault}")
    return names


def partitions(value: str) -> tuple[TopicPartition, ...]:
    """`{"topic": [0, 1]}`."""
    found = _document(value, read_partitions, 'such as {"topicA": [0, 1], "topicB": [2]}')
    if not found:
        raise ValueError("must name at least one partition: no topic partitions to assign")
    return tuple(found)


def pattern(value: str) -> str:
    # As Spark's own source has it. No topic has a blank in its name: it would match nothing.
    value = value.strip()
    if not value:
        raise ValueError("must hold a regular expression: the pattern to subscribe is empty")
    shared = "must be a regular expression that Python reads as well as Java"
    if _SET_OF_SETS.match(value):
        raise ValueError(f"{shared}: sets within sets, and &&, are Java's alone")
    try:
        re.compile(value)
    except re.error as failure:
        raise ValueError(f"{shared}: {failure}") from None
    return value


# A set that holds another, or &&: Java unites and intersects, where Python reads the signs
# themselves and so finds other topics.
_SET = r"\[\^?\]?(?:\\.|[^\]\\\[&]|&(?!&))*+"
_SET_OF_SETS = re.compile(rf"(?:\\.|[^\[\\]|{_SET}\])*+{_SET}(?:\[|&&)", re.DOTALL)


def positions(value: str) -> Everywhere | Offsets:
    folded = value.strip().lower()
    if folded in _KEYWORDS:
        return Everywhere(_KEYWORDS[folded])
    return Offsets(_document(value, read_positions, f"or one of: {OFFSETS_TEXT}"))


def starting_positions(value: str) -> Everywhere | Offsets | GroupOffsets:
    """As `positions`; also `group`, or `group:NAME`."""
    folded = value.strip()
    if folded.lower() == "group" or folded.lower().startswith("group:"):
        return GroupOffsets(name_up_to(NAME_BYTES_MAX)(folded[6:].strip()))
    return positions(value)


@takes(TIMESTAMPS_TEXT)
def timestamps(value: str) -> Mapping[TopicPartition, int]:
    read = lambda document: read_positions(document, least=0)  # noqa: E731
    found: dict[TopicPartition, int] = _document(value, read, f"of timestamps: {TIMESTAMPS_TEXT}")
    return found


def _document(value: str, read: Callable[[Any], Any], form: str) -> Any:
    document = json_document(value, form)
    try:
        return read(document)
    except ValueError:
        raise ValueError(f"must be JSON, {form}") from None
    except InvalidError as failure:
        raise ValueError(f"must be JSON, {form}; {failure.message}") from None


def keyword(**meant: _T) -> Callable[[str], _T]:
    """One of some words, in any case, as what it means."""

    @takes(", ".join(meant))
    def parse(value: str) -> _T:
        folded = value.strip().lower()
        if folded not in meant:
            raise ValueError(f"must be {' or '.join(meant)}, not '{value[:40]}'")
        return meant[folded]

    return parse
