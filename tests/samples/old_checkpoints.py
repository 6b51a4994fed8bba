"""A checkpoint of Spark 2.4.3's Kafka source, as that writes its files.

Two batches of a topic of two partitions: [2, 5) and [0, 4), then [5, 8) and [4, 7).
"""

from __future__ import annotations

import json
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint-spark-2.4.3.json"


def make_old_checkpoint(home: Path, topic: str = "orders", committed: int = 2) -> Path:
    """The files below `home`, for `topic`; so many of the batches are committed."""
    for name, text in json.loads(GOLDEN.read_text()).items():
        if name.startswith("commits/") and int(name.partition("/")[2]) >= committed:
            continue
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text.replace('"orders"', json.dumps(topic)))
    return home
