"""The text of a commit that says where logs were cut back: without it nobody could tell a position
that followed its log from one that went back by fault."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from keyrange.kafka.model.offsets import (
    OFFSET_MAX,
    TopicPartition,
    by_partition,
    nested,
)

_VERSION: Final = 1


def write_cuts(cut_back: Mapping[TopicPartition, int]) -> str:
    """Offsets by partition as text; none for none."""
    if not cut_back:
        return ""
    document = {"cutBack": nested(cut_back), "v": _VERSION}
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def read_cuts(text: str) -> dict[TopicPartition, int]:
    """What a text says; nothing where it is of another kind. Raises ValueError where it cannot
    be."""
    if not text.startswith('{"cutBack":'):
        return {}
    try:
        document: Any = json.loads(text)
    except RecursionError:
        raise ValueError("the text of a batch is nested too deep") from None
    if document.get("v") != _VERSION:
        raise ValueError("the text of a batch does not say which logs were cut back")
    found = dict(by_partition(document["cutBack"]))
    if not all(type(at) is int and 0 <= at <= OFFSET_MAX for at in found.values()):
        raise ValueError("the text of a batch does not say where a log was cut back")
    return found
