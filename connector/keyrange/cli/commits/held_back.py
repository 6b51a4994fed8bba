"""What open transactions hold back from readers of committed records, in documents and words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from keyrange.cli.times import iso
from keyrange.text.sizes import span

if TYPE_CHECKING:
    from keyrange.kafka.open_transactions import HeldBack


def describe(held: HeldBack, now_ms: int) -> dict[str, Any]:
    """None stands for what the broker does not tell; `silent_ms` is since the producer wrote."""
    is_told, has_written = held.producer_id >= 0, held.written_ms >= 0
    return {
        "from_offset": held.span.from_offset,
        "until_offset": held.span.until_offset,
        "producer_id": held.producer_id if is_told else None,
        "producer_epoch": held.producer_epoch if is_told else None,
        "written_at": iso(held.written_ms) if has_written else None,
        "silent_ms": max(now_ms - held.written_ms, 0) if has_written else None,
    }


def text(document: Mapping[str, Any]) -> str:
    """`300 offsets from 41207 on are held back ...`, without the partition."""
    begin = document["from_offset"]
    words = (
        f"{document['until_offset'] - begin:,} offsets from {begin} on are held back from "
        "read_committed by an open transaction"
    )
    if document["producer_id"] is not None:
        words += f" of producer {document['producer_id']} (epoch {document['producer_epoch']})"
    if document["silent_ms"] is not None:
        words += f", which wrote last {span(document['silent_ms'])} ago"
    return words
