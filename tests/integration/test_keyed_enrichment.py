"""`jobs/keyed_enrichment.py` against an HTTP service that is slow, busy, away and unwilling."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics, wait_until
from queries.ingesting import Ingest, ingest
from spark.notebooks import load_job
from spark.standalone import ON_LOOPBACK, standalone_cluster

JOB = "keyed_enrichment.py"
COUNT, KEYS = 300, 25
# Of keys that are never answered for: a record of a key waits until the one before is given up.
LOST_EACH = 2
REFUSED, BROKEN, BUSY, CUT, SLOW = (b"key %d" % n for n in (3, 7, 11, 13, 17))


class Service(ThreadingHTTPServer):
    """Answers with the value turned round. What it does not answer goes by the value's key."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/turn?quick=no"
        self.lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.answered: dict[bytes, list[int]] = defaultdict(list)
        self.headers: list[tuple[str, str | None]] = []

    def turn(self, name: str, value: bytes) -> tuple[int, bytes]:
        key, _, number = value.partition(b"/")
        with self.lock:
            self.calls[name] += 1
            first = self.calls[name] == 1
        time.sleep(0.1 if key == SLOW else 0.002)
        if key == REFUSED:
            return 422, b""
        if key == BROKEN:
            return 500, b""
        if key == BUSY and first:
            return 503, b""
        if key == CUT and first:
            return 0, b""
        with self.lock:
            self.answered[key].append(int(number))
        return 200, value[::-1]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_POST(self) -> None:
        value = self.rfile.read(int(self.headers["Content-Length"]))
        name = self.headers["Idempotency-Key"]
        self.server.headers.append((self.path, self.headers["Authorization"]))
        status, answer = self.server.turn(name, value)
        if not status:
            self.close_connection = True  # without a word
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as started:
        thread = threading.Thread(target=started.serve_forever, daemon=True)
        thread.start()
        yield started
        started.shutdown()


def key_of(number: int) -> bytes:
    key = b"key %d" % (number % KEYS)
    return b"key 0" if key in (REFUSED, BROKEN) and number >= LOST_EACH * KEYS else key


def values_of(count: int) -> list[bytes]:
    return [b"%s/%d" % (key_of(n), n) for n in range(count)]


def produce(topics: Topics, count: int = COUNT) -> str:
    topic = topics.create_topic("enriched", 2)
    values = values_of(count)
    topics.produce(topic, (Record(value, value.split(b"/")[0]) for value in values))
    # Without a value there is nothing to ask.
    topics.produce(topic, [Record(None, b"key 1")])
    return topic


def more(home: Path, url: str, *options: str) -> list[str]:
    given = (
        *("maxDeliveries=2", "redelivery.backoff=10ms", "availableNow.redelivery=drain"),
        *("keyRangesPerPartition=2", *options),
    )
    return [
        *("--service", url, "--authorization", f"file:{home}/token", "--tries", "2"),
        *("--commit-table", str(home / "commits"), "--available-now"),
        *(each for option in given for each in ("--option", option)),
    ]


def check(home: Path, service: Service, count: int = COUNT) -> None:
    """Each value once: its answer in the table, or itself among the dead letters."""
    values = values_of(count)
    lost = [value for value in values if value.split(b"/")[0] in (REFUSED, BROKEN)]
    rows = DeltaTable(str(home / "table")).to_pyarrow_table().to_pylist()
    assert sorted(row["answer"].encode()[::-1] for row in rows) == sorted(set(values) - set(lost))
    assert all(row["answer"].encode()[::-1].startswith(row["key"] + b"/") for row in rows)
    letters = DeltaTable(str(home / "commits_dead_letters")).to_pyarrow_table().to_pylist()
    assert sorted(row["value"] for row in letters) == sorted(lost)
    errors = {row["key"]: row["error"].partition("\n")[0] for row in letters}
    assert "422" in errors[REFUSED]
    assert "500" in errors[BROKEN]
    assert set(service.headers) == {("/turn?quick=no", "Bearer of the token")}


@pytest.mark.broker
@pytest.mark.spark
def test_each_key_is_asked_about_in_order_and_once(
    topics: Topics, spark: SparkSession, tmp_path: Path, service: Service
) -> None:
    """In a session; the job as users run it is below."""
    topic = produce(topics)
    (tmp_path / "token").write_text("Bearer of the token\n")
    given = more(tmp_path, service.url)
    job = load_job("keyed_enrichment")
    place = ("--table", str(tmp_path / "table"), "--checkpoint", str(tmp_path / "checkpoint"))
    broker = ("--bootstrap-servers", topics.cluster.bootstrap_servers, "--topic", topic)
    arguments = job.parse_arguments([*broker, *place, *given])
    query, _ = job.start(spark, arguments, load_job("ingest").source_options(arguments))
    assert query.awaitTermination(240)

    check(tmp_path, service)
    assert len(service.answered) == KEYS - 2
    for key, numbers in service.answered.items():
        assert numbers == sorted(numbers), key
    asked = Counter(service.calls.values())
    each = COUNT // KEYS  # of busy and cut
    # Refused: once in each of two deliveries. Broken: twice in each. Busy and cut: once more.
    assert asked == {1: COUNT - 2 * each - 2 * LOST_EACH, 2: 2 * each + LOST_EACH, 4: LOST_EACH}
    work = DeltaTable(str(tmp_path / "commits")).to_pyarrow_table(columns=["rejected", "dead"])
    # Busy and cut have their answer in the delivery in which they were asked about.
    assert (pc.sum(work["rejected"]).as_py(), pc.sum(work["dead"]).as_py()) == (
        4 * LOST_EACH,
        2 * LOST_EACH,
    )


def asked_or_ended(service: Service, run: Ingest, calls: int) -> bool:
    return service.calls.total() > calls or run.process.poll() is not None


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(1_200)
def test_a_job_that_is_killed_goes_on_with_what_it_has(
    topics: Topics, tmp_path: Path, service: Service
) -> None:
    count = 700
    topic = produce(topics, count)
    (tmp_path / "token").write_text("Bearer of the token\n")
    given = more(tmp_path, service.url, "maxOffsetsPerTrigger=150")
    for calls in (100, 400):
        with ingest(topics, topic, tmp_path, "local[2]", *given, job=JOB) as run:
            wait_until(partial(asked_or_ended, service, run, calls), 240)
            assert run.process.poll() is None, run.text()[-3000:]
            run.kill_all()
    with ingest(topics, topic, tmp_path, "local[2]", *given, job=JOB) as run:
        assert run.wait(600) == 0, run.text()[-3000:]

    check(tmp_path, service, count)
    # A batch that was killed before its verdict was kept is asked about again; the others are not.
    answers = Counter(number for numbers in service.answered.values() for number in numbers)
    assert sum(times > 1 for times in answers.values()) <= 2 * 150


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_it_runs_on_a_cluster(topics: Topics, tmp_path: Path, service: Service) -> None:
    topic = produce(topics)
    (tmp_path / "token").write_text("Bearer of the token\n")
    given = more(tmp_path, service.url, "parallelism=2")
    with (
        standalone_cluster(tmp_path) as cluster,
        ingest(topics, topic, tmp_path, cluster.master, *given, confs=ON_LOOPBACK, job=JOB) as run,
    ):
        assert run.wait(400) == 0, run.text()[-3000:]
    check(tmp_path, service)
