"""Tables with keys on S3: merged by the session's Delta, which reaches it by s3a, or by the driver,
by options `objectStore.NAME`, once for each batch although a driver is killed beside the merge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from brokers.real_broker import Record, Topics
from platforms.s3_server import S3Server
from platforms.s3a import confs_of, told_by_options
from queries.ingesting import ingest

_JOB = str(Path(__file__).parent / "upsert_job.py")


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(
    ("by", "ends", "mode"),
    [
        ("spark", "before", "batch"),
        ("spark", "after", "individual"),
        ("driver", "before", "individual"),
        ("driver", "after", "batch"),
    ],
)
def test_a_batch_is_merged_once_although_the_driver_is_killed(
    topics: Topics, s3_server: S3Server, tmp_path: Path, by: str, ends: str, mode: str
) -> None:
    topic = topics.create_topic("upserts", 2)
    place, kept = f"lake/{topic}", dict[str, str]()

    def produce(*rows: tuple[int, str]) -> None:
        kept.update({str(key): text for key, text in rows})
        records = [Record(text.encode(), b"%d" % key, key % 2) for key, text in rows]
        topics.produce(topic, records)

    def run(ends: str = "") -> None:
        more = ("--table", f"s3a://{place}/table", "--checkpoint", f"s3a://{place}/checkpoint")
        if mode == "individual":
            more += ("--commits", f"s3://{place}/commits")
        given: Any = {"confs": confs_of(s3_server), "job": _JOB}
        more += ("--by", by, "--ends", ends)
        with pytest.MonkeyPatch.context() as patch:
            if by == "driver":
                more += told_by_options(s3_server, patch)
            with ingest(topics, topic, tmp_path, "local[2]", *more, **given) as started:
                assert (started.wait() == 0) == (ends == ""), started.text()[-3000:]

    produce(*((key, f"a{key}") for key in range(9)))
    run()
    produce((1, "b1"), (2, ""), (3, "b3"), (20, "b20"))
    run(ends)
    version = DeltaTable(f"s3://{place}/table").version()
    produce((3, "c3"), (7, ""))
    run()
    table = DeltaTable(f"s3://{place}/table")
    assert table.version() == version + (2 if ends == "before" else 1)
    history = table.history()
    assert [each["operation"] for each in history].count("MERGE") == 3
    last = next(each for each in history if each["operation"] == "MERGE")
    if by == "spark":
        predicate = str(last["operationParameters"]).upper()
        assert "2026-01-0" in predicate
        assert "DAY" in predicate
    assert held(table) == {key: text for key, text in kept.items() if text}
    # Delta's writer leaves the files of rows that were merged, and says which are gone.
    assert ('"deletionVector"' in log_of(s3_server, topic)) == (by == "spark")


def held(table: DeltaTable) -> dict[str, str]:
    found = QueryBuilder().register("t", table).execute("SELECT id, text FROM t").read_all()
    rows = pa.table(found).to_pylist()
    found = {row["id"]: row["text"] for row in rows}
    assert len(found) == len(rows), rows
    return found


def log_of(server: S3Server, topic: str) -> str:
    names = server.objects(f"{topic}/table/_delta_log/")
    entries = [server.content(name) for name in sorted(names) if name.endswith(".json")]
    assert entries
    return "".join(each.decode() for each in entries if each)
