"""Delta tables, verdicts and files of keyrange on S3: races, faults, and how many calls they take.

moto answers (s3_server.py), so this is about what a store may do, and not about its speed.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from keyrange.errors import InvalidError, KeyrangeError, UnavailableError
from keyrange.individual_commits.batch_in_checkpoint import read_offsets
from keyrange.individual_commits.model.verdict_manifest import Manifest, planned
from keyrange.individual_commits.verdict_store import VerdictStore, plan_attempt
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.offsets import TopicPartition
from keyrange.storage.checkpoint_files import load_progress
from keyrange.storage.data_files import DataFileWriter
from keyrange.storage.directory import Directory
from keyrange.storage.sink_table import SinkTable
from keyrange.work.appended_files import files_of
from keyrange.work.outcome_rows import member_rows, other_rows
from s3_server import S3Server, by_kind
from tables.numbered_logs import COMMITS, SUBJECTS, Subject
from tables.racing_writers import check_one_driver_goes_on, check_put_once, in_threads

PLACE = TopicPartition("t", 0)
START, END = Checkpoint({PLACE: 5}), Checkpoint({PLACE: 9}, commits=CommitMark("s", 1))
ROWS = pa.schema([("at", pa.int64())])


@pytest.fixture
def home(request: pytest.FixtureRequest) -> str:
    """A place of its own in the bucket."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    return f"s3://lake/{name}"


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.name)
def subject(request: pytest.FixtureRequest) -> Subject:
    return request.param


@pytest.mark.usefixtures("s3")
def test_of_those_who_put_at_once_one_does(home: str) -> None:
    check_put_once(home)


@pytest.mark.usefixtures("s3")
def test_of_drivers_that_publish_at_once_one_is_followed(home: str) -> None:
    drivers = [VerdictStore(home, "s") for _ in range(6)]
    offsets = planned(START, END)
    made = [Manifest(3, f"a{at}", {}, {"type": "struct"}, *offsets) for at in range(6)]
    found = list(made)

    def publish(at: int) -> None:
        found[at] = drivers[at].publish(made[at], START, END)

    assert in_threads(6, publish) == []
    assert found == [found[0]] * 6
    assert drivers[0].manifest(3, START, END) == found[0]
    drivers[0].remove_old(lambda batch_id: batch_id == 3)
    assert drivers[0].manifest(3, START, END) is None


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize("appending", [True, False])
def test_where_no_manifest_decides_the_table_has_one_drivers_rows(
    home: str, appending: bool
) -> None:
    """Each has its own output, and may end before it appends."""
    sinks = [SinkTable(f"{home}/sink", ROWS, {}) for _ in range(6)]
    sinks[0].prepare()

    def work(at: int) -> None:
        store = VerdictStore(home, "s", decides=False)
        writer = DataFileWriter(sinks[at].uri, ROWS)
        writer.add(pa.record_batch({"at": [at]}, schema=ROWS))
        [file] = writer.finish()
        row = (file.name, file.size_bytes, file.rows, file.statistics, [], "")
        offsets = planned(START, END)
        store.publish(Manifest(3, "", {}, {}, *offsets, rows={"file": [row]}), START, END)
        if appending:
            sinks[at].append([file], "app", 3, check_files=False)

    def go_on() -> None:
        found = VerdictStore(home, "s", decides=False).manifest(3, START, END)
        assert found is not None
        files = files_of(found.rows["file"])
        SinkTable(f"{home}/sink", ROWS, {}).append(files, "app", 3, check_files=True)

    assert in_threads(6, work) == []
    go_on()
    assert len(_rows(f"{home}/sink")) == 1
    go_on()
    assert len(_rows(f"{home}/sink")) == 1


@pytest.mark.usefixtures("s3")
def test_of_drivers_that_write_at_once_one_goes_on(subject: Subject, home: str) -> None:
    check_one_driver_goes_on(subject, home)


@pytest.mark.usefixtures("s3")
def test_of_drivers_that_make_a_table_at_once_one_does(subject: Subject, home: str) -> None:
    tables = [subject.open(home) for _ in range(4)]
    raised = in_threads(4, lambda at: tables[at].append(subject.begin(1, f"run-{at}")))
    names = [each.condition.name for each in raised if isinstance(each, KeyrangeError)]
    assert names == [subject.fenced] * 3
    assert len(list(subject.open(home).history())) == 1


@pytest.mark.parametrize("wait_ms", [0, 100])
def test_a_conditional_put_whose_answer_is_lost_is_recognised(
    s3: S3Server, home: str, wait_ms: int
) -> None:
    """The client tries again, and is told that the file is there."""
    table, sink = COMMITS.open(home + "/commits"), SinkTable(home + "/sink", ROWS, {})
    lost = {"lost": 1.0, "matching": "PUT .*_delta_log/.*json", "times": 1, "delay_ms": wait_ms}
    for at in range(1, 4):
        s3.set_faults(**lost)
        table.append(COMMITS.entry(at))
        assert s3.happened() == {"lost": 1}
        s3.set_faults(**lost)
        _append(sink, at)
        assert s3.happened() == {"lost": 1}
    assert list(COMMITS.open(home + "/commits").history()) == COMMITS.entries(3)
    assert _rows(home + "/sink") == [1, 2, 3]
    s3.set_faults(**lost)
    assert Directory(home).write_once("once", b"text")
    assert Directory(home).read("once") == b"text"


@pytest.mark.parametrize("fault", ["failing", "throttled"])
def test_a_file_that_is_smaller_than_the_answer_of_a_failure_is_read(
    s3: S3Server, home: str, fault: str
) -> None:
    """A client without room for the answer would lose what the store said."""
    directory = Directory(home)
    directory.write("metadata", b"{}")
    s3.set_faults(**{fault: 1.0, "matching": "^GET .*metadata"})
    assert directory.read("metadata") == b"{}"
    assert s3.happened() == {fault: 2}


def test_a_store_that_refuses_is_no_wrong_path(s3: S3Server, home: str) -> None:
    directory = Directory(home)
    directory.write("metadata", b"{}")
    s3.set_faults(denied=1.0, most=100)
    with pytest.raises(UnavailableError, match=r"CHECKPOINT_UNREADABLE.*AWS_"):
        load_progress(directory)
    with pytest.raises(UnavailableError, match=r"CHECKPOINT_UNREADABLE.*batch 4.*AWS_"):
        read_offsets(home, 4)
    s3.set_faults()
    with pytest.raises(InvalidError, match=r"INVALID_CHECKPOINT_PATH.*batch 4"):
        read_offsets(home, 4)


@pytest.mark.usefixtures("s3")
def test_tables_have_hadoops_name_too(home: str) -> None:
    s3a = home.replace("s3://", "s3a://")
    COMMITS.open(s3a).append(COMMITS.entry(1))
    assert list(COMMITS.open(home).history()) == COMMITS.entries(1)
    sink = SinkTable(f"{s3a}/sink", ROWS, {})
    _append(sink, 1)
    assert _rows(f"{home}/sink") == [1]
    assert Directory(s3a).write_once("once", b"text")
    assert not Directory(home).write_once("once", b"another text")


def test_calls_of_a_commit_do_not_grow(s3: S3Server, home: str) -> None:
    """commits.s3.calls: of a commit, of a look, and of a reader's look at what is new."""
    table, reader = COMMITS.open(home), COMMITS.open(home)
    seen: dict[str, list[dict[str, int]]] = {"commit": [], "look": [], "news": []}

    def counted(what: str, work: Callable[[], Any]) -> None:
        s3.calls()
        work()
        seen[what].append(by_kind(s3.calls()))

    for at in range(1, 31):
        counted("commit", lambda at=at: table.append(COMMITS.entry(at)))
        counted("look", table.known)
        counted("news", reader.known)
    for what, calls in seen.items():
        print(f"commits.s3.calls {what}: {calls[1]} and behind 30 commits {calls[-1]}")
        assert calls[-1] == calls[5]
    assert seen["look"][-1] == {"GET": 1}
    assert seen["commit"][-1] == {"HEAD": 1, "PUT": 2}
    assert seen["news"][-1] == {"GET": 3}


def test_a_manifest_that_does_not_decide_costs_no_list(s3: S3Server, home: str) -> None:
    store = VerdictStore(home, "s", decides=False)
    store.remove_old(lambda _: False)
    s3.calls()
    for batch_id in range(1, 4):
        assert store.manifest(batch_id, START, END) is None
        store.publish(Manifest(batch_id, "", {}, {}, *planned(START, END)), START, END)
        store.remove_old(lambda _: False)
    # It asks for that of its first batch.
    assert by_kind(s3.calls()) == {"GET": 1, "PUT": 3}


def test_calls_of_a_manifest_that_decides(s3: S3Server, home: str) -> None:
    """commits.s3.calls: of a verdict that is made, read three times, and removed with the next."""
    store = VerdictStore(home, "s")
    rows = other_rows(pa.schema([]), member_rows("done", [(*PLACE, 5)]))
    data = io.BytesIO()
    pq.write_table(pa.Table.from_batches([rows]), data)
    for batch_id in range(1, 8):
        attempt, path = plan_attempt(home, "s", str(batch_id))
        Directory(path).write("part-0", data.getvalue())
        s3.calls()
        assert store.manifest(batch_id, START, END) is None
        files = {"part-0": data.getbuffer().nbytes}
        made = Manifest(batch_id, attempt, files, {}, *planned(START, END))
        assert store.publish(made, START, END) == made
        for _ in range(3):
            store.rows_in(made, {"done": ("topic", "partition", "records")})
        store.remove_old(lambda other, last=batch_id: other < last, made)
    calls = s3.calls()
    print(f"commits.s3.calls verdict: {by_kind(calls)}")
    assert by_kind(calls) == {"DELETE": 1, "GET": 1, "PUT": 1}
    kept = {key.removeprefix(home.removeprefix("s3://lake/")) for key in s3.objects(home[10:])}
    assert kept == {"/s/7/manifest.json", "/s/plan-7/part-0"}


def _append(sink: SinkTable, at: int) -> None:
    sink.prepare()
    writer = DataFileWriter(sink.uri, ROWS)
    writer.add(pa.record_batch({"at": [at]}, schema=ROWS))
    sink.append(writer.finish(), "app", at, check_files=False)


def _rows(uri: str) -> list[int]:
    return sorted(DeltaTable(uri).to_pyarrow_table().column("at").to_pylist())
