"""What `keyrange state show` says of a partition: a document, and a line with a picture of how many
runs lie over one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from keyrange.kafka.model.offsets import TopicPartition
from keyrange.text.formats import number, size_text

if TYPE_CHECKING:
    from keyrange.individual_commits.table.keyed_state_rows import StoredState

_WIDTH: Final = 48
# On a terminal that has no room for more beside the other columns.
_WIDTH_MIN: Final = 16
_WIDE: Final = 100


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


def line_of(partition: Mapping[str, Any], width: int | None = None) -> list[str]:
    """The cells of a partition; `width` is that of the terminal, where there is one."""
    is_wide = width is None or width >= _WIDE
    depths = _depths(partition["runs"], _WIDTH if is_wide else _WIDTH_MIN)
    return [
        f"{partition['topic']}-{partition['partition']}",
        number(partition["rows"] if partition["keys"] is None else partition["keys"]),
        size_text(partition["bytes"]),
        number(partition["files"]),
        number(max(depths, default=0)),
        "".join(_BARS[min(each, len(_BARS) - 1)] for each in depths),
    ]


_BARS: Final = " ▁▂▃▄▅▆▇█"


def _depths(runs: list[Mapping[str, Any]], cells: int) -> list[int]:
    """How many runs lie over one another, from the least hash to the greatest."""
    points = [(2 * at + 1) * 2**62 // cells for at in range(cells)]
    return [sum(run["lo"] <= point <= run["hi"] for run in runs) for point in points]
