"""Every option may change between two runs, with a batch unfinished in between: the outcome is the
same, or the change is refused by name before anything is read."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics
from commands.commanding import document
from keyrange.errors import CATALOGUE
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.model.key_ranges import HASH_MAX
from queries.individual import failure_of
from queries.table_jobs import TableJob, individual

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = [pytest.mark.broker, pytest.mark.spark]

SCHEMA = "topic string, partition int, offset long"
HALF = HASH_MAX // 2
PARTIAL = '{"TOPIC": {"0": [[0, HALF]], "1": [[0, HALF]]}}'
CHANGES: dict[str, dict[str, str]] = {
    "splitBy": {"splitBy": "partition"},
    "keyRangesPerPartition": {"keyRangesPerPartition": "3"},
    "keyRanges": {
        "keyRanges": '{"TOPIC": {"0": [[0, 99], [100, MAX]], "1": [[0, 99], [100, MAX]]}}'
    },
    "coverage": {"keyRanges": '{"TOPIC": {"0": [[0, HALF]], "1": [[0, HALF]]}}'},
    "coverage of partitions": {
        "splitBy": "partition",
        "keyRanges": '{"TOPIC": {"0": [[0, HALF]], "1": [[0, HALF]]}}',
    },
    "nullKeys": {"nullKeys": "first"},
    "keys": {"keys": '["key-0"]'},
    "isolation": {"kafka.isolation.level": "read_uncommitted"},
    "keyOrder": {"keyOrder": "skipAhead"},
    "pin": {"pin": "prefer", "pin.driver.host": "127.0.0.1", "pin.wait.ms": "0"},
    "columns": {"columns": "offset,value"},
    "headers": {"includeHeaders": "true", "includeKeyHash": "true"},
    "limits": {"maxOffsetsPerTrigger": "5", "maxBatchRows": "3", "bytesPerTask": "0"},
    "deliveries": {"maxDeliveries": "1", "max.num.ranges.to.commit": "1"},
    "one topic more": {"subscribe": "TOPIC,MORE"},
    "pattern": {"subscribePattern": "TOPIC.*"},
    "commitMode": {"commitMode": "batch"},
    "state": {"state": "yes"},
}

REFUSED = {
    "coverage": "INVALID_OPTIONS",
    "coverage of partitions": "INVALID_OPTIONS",
    "nullKeys": "COMMIT_TERMS_CHANGED",
    "keys": "COMMIT_TERMS_CHANGED",
    "commitMode": "BATCH_UNFINISHED",
}


def failing_until(mended: str, with_state: bool) -> Any:
    def work(record: Any) -> Any:
        if record.offset % 7 == 0 and not Path(mended).exists():
            raise ValueError("not yet")
        return record.topic, record.partition, record.offset

    def keyed(record: Any, state: Any) -> Any:
        state.n.update(state.n.get(default=0) + 1)
        return work(record)

    return keyed if with_state else work


# What commits, plans and tasks each go by; the others in longer forms.
ORDINARY = {
    *("splitBy", "keyRangesPerPartition", "coverage", "keys", "isolation", "pin", "limits"),
    *("one topic more", "commitMode", "state"),
}


@pytest.mark.parametrize(
    "change",
    [pytest.param(each, marks=[] if each in ORDINARY else pytest.mark.slow) for each in CHANGES],
)
def test_an_option_changes_beside_a_batch_that_is_not_finished(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    job = TableJob(spark, topics, tmp_path, partitions=2)
    mended, base = tmp_path / "mended", {"splitBy": "keyRange", "keyRangesPerPartition": "8"}
    base |= individual(tmp_path, **{"redelivery.backoff": "4s", "availableNow.redelivery": "leave"})

    def produce(count: int) -> None:
        keys = [None if n % 5 == 0 else b"key-%d" % (n % 9) for n in range(count)]
        job.produce(*(Record(b"v", key, n % 2) for n, key in enumerate(keys)))

    def start(given: dict[str, str]) -> Any:
        state = {"n": keyrange.ValueState("n long")} if given.pop("state", "") else None
        work = failing_until(str(mended), bool(state))
        return job.start(work, SCHEMA, state=state, **given)

    produce(40)
    assert start(dict(base)).awaitTermination(240)
    produce(20)
    with monkeypatch.context() as patch:
        patch.setattr(VerdictStore, "publish", lambda *_: 1 / 0)
        assert "ZeroDivisionError" in failure_of(start(dict(base)))
    mended.touch()
    more = topics.create_topic(f"{job.topic}-more") if "MORE" in str(CHANGES[change]) else ""
    names = {"TOPIC": job.topic, "MORE": more, "HALF": str(HALF), "MAX": str(HASH_MAX)}
    changed = dict(base)
    for name, value in CHANGES[change].items():
        changed[name] = re.sub("|".join(names), lambda found: names[found[0]], value)
    drained = {"availableNow.redelivery": "drain"}
    try:
        assert start(changed | drained).awaitTermination(240)
        refused = ""
    except Exception as failure:
        [*found] = re.findall(r"\[([A-Z_.]+)\] ", str(failure))
        refused = next(each for each in found if each in CATALOGUE)
    if refused:
        assert start(base | drained).awaitTermination(240)
    places = [(row["topic"], row["partition"], row["offset"]) for row in job.rows()]
    if change == "state":
        # What has no key has no state, and is given up.
        letters = document("deadletters", "list", tmp_path / "commits")
        assert {each["cause"] for each in letters} == {"no_key"}
        places += [(each["topic"], each["partition"], each["offset"]) for each in letters]
    assert sorted(places) == [(job.topic, number, at) for number in range(2) for at in range(30)]
    assert refused == REFUSED.get(change, "")
