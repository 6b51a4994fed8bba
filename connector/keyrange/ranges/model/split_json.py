"""Splits as JSON, in which the binding service tells tasks what they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keyrange.ranges.model.placement import Placement
from keyrange.ranges.model.splits import Delivery, Split


def write_split(split: Split) -> dict[str, Any]:
    document: dict[str, Any] = {
        "topic": split.topic,
        "partition": split.partition,
        "offsets": [split.from_offset, split.until_offset],
        "bytes": split.bytes_estimate,
    }
    if split.placement is not None:
        own = split.placement
        document["placement"] = [own.uppers, own.owners, own.reader]
    if split.shared:
        document["shared"] = split.shared
    if split.delivery is not None:
        each = split.delivery
        document["delivery"] = [each.uppers, each.froms, each.untils, each.offsets]
    if split.leader_epoch >= 0:
        document["leaderEpoch"] = split.leader_epoch
    return document


def read_split(document: Mapping[str, Any]) -> Split:
    placement = delivery = None
    if "placement" in document:
        uppers, owners, reader = document["placement"]
        placement = Placement(tuple(uppers), tuple(owners), reader)
    if "delivery" in document:
        delivery = Delivery(*map(tuple, document["delivery"]))
    from_offset, until_offset = document["offsets"]
    return Split(
        document["topic"],
        document["partition"],
        from_offset,
        until_offset,
        document["bytes"],
        placement,
        document.get("shared", ""),
        delivery,
        document.get("leaderEpoch", -1),
    )
