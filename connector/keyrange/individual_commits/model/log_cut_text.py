"""The text of a commit that says where logs were cut back: without it nobody could tell a position
that followed its log from one that went back by fault."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from keyrange.kafka.model.offsets import OFFSET_MAX, PARTITION_MAX, TopicPartition

_VERSION: Final = 1


def write_cuts(cut_back: Mapping[TopicPartition, int]) -> str:
    """Offsets by partition as text; none for none."""
    if not cut_back:
        return ""
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), at in sorted(cut_back.items()):
        topics.setdefault(topic, {})[str(number)] = at
    document = {"cutBack": topics, "v": _VERSION}
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
    topics = document["cutBack"]
    if document.get("v") != _VERSION or not isinstance(topics, dict):
        raise ValueError("the text of a batch does not say which logs were cut back")
    found: dict[TopicPartition, int] = {}
    for topic, numbers in topics.items():
        for number, at in numbers.items() if isinstance(numbers, dict) else [("", -1)]:
            known = number.isascii() and number.isdigit() and int(number) <= PARTITION_MAX
            if not known or type(at) is not int or not 0 <= at <= OFFSET_MAX:
                raise ValueError("the text of a batch does not say where a log was cut back")
            found[TopicPartition(topic, int(number))] = at
    return found
