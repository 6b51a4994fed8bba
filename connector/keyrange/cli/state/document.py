"""What `keyrange state show --output json` says of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keyrange.kafka.model.offsets import TopicPartition

if TYPE_CHECKING:
    from keyrange.individual_commits.table.keyed_state_rows import StoredState


def described(stored: StoredState, partition: TopicPartition, keys: int | None) -> dict[str, Any]:
    runs = stored.runs[partition]
    return {
        **partition._asdict(),
        "keys": keys,
        "rows": sum(run.rows for run in runs),
        "bytes": sum(run.size_bytes for run in runs),
        "files": len({run.file for run in runs}),
        "runs": [
            {
                "file": run.file,
                "lo": run.span.from_hash,
                "hi": run.span.until_hash - 1,
                "from_seq": run.from_seq,
                "until_seq": run.until_seq,
                "rows": run.rows,
                "bytes": run.size_bytes,
            }
            for run in runs
        ],
    }
