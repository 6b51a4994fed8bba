"""The store of verdicts: what counts, at whatever step a process ends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits import verdict_store
from keyrange.individual_commits.model.verdict_manifest import Manifest, planned, sealed
from keyrange.individual_commits.verdict_store import VerdictStore, plan_attempt
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.offsets import TopicPartition
from keyrange.storage.directory import Directory
from keyrange.storage.locations import as_spark_names
from tables.racing_writers import in_threads

PLACE = TopicPartition("t", 0)
START = Checkpoint({PLACE: 5})
END = Checkpoint({PLACE: 9}, commits=CommitMark("s", 1))


@pytest.fixture
def store(tmp_path: Path) -> VerdictStore:
    return VerdictStore(str(tmp_path), "s")


def write_attempt(store: VerdictStore, data: bytes = b"rows") -> Manifest:
    attempt, path = store.new_attempt(3)
    Path(path).mkdir(parents=True)
    (Path(path) / "part-0.parquet").write_bytes(data)
    (Path(path) / "_SUCCESS").touch()
    files = store.files_of(3, attempt)
    assert files == {"part-0.parquet": len(data)}
    return Manifest(3, attempt, files, {"type": "struct"}, *planned(START, END), staged=(1, 2))


def damaged(condition: str = "VERDICT_DAMAGED") -> Any:
    return pytest.raises(KeyrangeError, match=rf"\[{condition}\]")


def test_a_manifest_reads_as_it_was_written(store: VerdictStore, tmp_path: Path) -> None:
    assert store.manifest(3, START, END) is None
    made = write_attempt(store)
    assert store.publish(made, START, END) == made
    assert store.manifest(3, START, END) == made
    [path] = store.paths(made)
    assert Path(path).read_bytes() == b"rows"
    assert store.holds(3, made.attempt, [f"file:{path}"])
    assert not store.holds(3, made.attempt, [f"file:{path}", f"file:{tmp_path}/else"])
    assert not store.holds(4, made.attempt, [f"file:{path}"])


def test_the_first_manifest_counts(store: VerdictStore) -> None:
    first, second = write_attempt(store), write_attempt(store, b"others")
    assert store.publish(first, START, END) == first
    assert store.publish(second, START, END) == first


@pytest.fixture
def object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VerdictStore:
    """Stands for a store of objects, where each call costs."""
    monkeypatch.setattr(Directory, "is_local", False)
    return VerdictStore(str(tmp_path), "s")


def test_of_drivers_that_publish_at_once_in_a_store_of_objects_one_is_followed(
    object_store: VerdictStore, tmp_path: Path
) -> None:
    """Each has seen that there is none, and has its own output."""
    made = [write_attempt(object_store, b"%d" % n) for n in range(8)]
    drivers = [VerdictStore(str(tmp_path), "s") for _ in made]
    together, counted = Barrier(len(made)), [made[0]] * len(made)

    def publish(n: int) -> None:
        together.wait()
        counted[n] = drivers[n].publish(made[n], START, END)

    assert in_threads(len(made), publish) == []
    assert counted == [counted[0]] * len(made)
    assert object_store.publish(made[0], START, END) == counted[0]
    object_store.remove_old(lambda batch_id: batch_id == 3)
    assert object_store.manifest(3, START, END) is None


def test_a_store_of_objects_that_takes_no_files_is_named(
    object_store: VerdictStore, tmp_path: Path
) -> None:
    made = write_attempt(object_store)
    (tmp_path / "s" / "3" / "manifest.json").mkdir()
    with damaged("VERDICT_UNWRITABLE"):
        object_store.publish(made, START, END)


def test_an_attempt_without_a_manifest_does_not_count(store: VerdictStore) -> None:
    write_attempt(store)
    assert store.manifest(3, START, END) is None


def test_a_verdict_of_another_plan_is_refused(store: VerdictStore) -> None:
    store.publish(write_attempt(store), START, END)
    with damaged("VERDICT_MISMATCH"):
        store.manifest(3, START, Checkpoint({PLACE: 10}, commits=END.commits))
    with damaged("VERDICT_MISMATCH"):
        store.manifest(3, Checkpoint({PLACE: 4}), END)


def test_files_that_are_gone_or_changed_are_named(store: VerdictStore) -> None:
    made = store.publish(write_attempt(store), START, END)
    part = Path(store.paths(made)[0])
    part.write_bytes(b"row")
    with pytest.raises(KeyrangeError, match=r"part-0.parquet has 3 bytes, the manifest says 4"):
        store.manifest(3, START, END)
    part.unlink()
    with pytest.raises(KeyrangeError, match=r"part-0.parquet is not there"):
        store.manifest(3, START, END)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"attempt": "../elsewhere"},
        {"attempt": ".."},
        {"attempt": "a\\b"},
        {"attempt": None},
        {"files": {"..": 4}},
        {"files": {"../part-0": 4}},
        {"files": {"part-0": "4"}},
        {"files": []},
        {"staged": ["1"]},
        {"schema": None},
        {"start": []},
        {"rows": []},
        {"rows": {"done": 3}},
        {"rows": {"done": [3]}},
    ],
)
def test_damaged_manifests_are_refused(
    store: VerdictStore, tmp_path: Path, change: dict[str, Any]
) -> None:
    store.publish(write_attempt(store), START, END)
    path = tmp_path / "s" / "3" / "manifest.json"
    document = json.loads(path.read_text()) | change
    del document["crc32"]
    path.write_bytes(sealed(json.dumps(document).encode()))
    with damaged():
        store.manifest(3, START, END)


@pytest.mark.parametrize("rows", [0, 3_000])
def test_a_manifest_with_a_bit_flipped_is_refused(
    store: VerdictStore, tmp_path: Path, rows: int
) -> None:
    done = {"done": [("t", number, 1) for number in range(rows)]}
    store.publish(replace(write_attempt(store), rows=done), START, END)
    path = tmp_path / "s" / "3" / "manifest.json"
    data = path.read_bytes()
    for at in range(0, len(data), 3 + len(data) // 300):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        with damaged():
            store.manifest(3, START, END)
    path.write_bytes(data)
    assert store.manifest(3, START, END) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version": 2}', "\xff"])
def test_what_is_no_manifest_is_refused(store: VerdictStore, tmp_path: Path, text: str) -> None:
    store.publish(write_attempt(store), START, END)
    (tmp_path / "s" / "3" / "manifest.json").write_text(text, encoding="latin-1")
    with damaged():
        store.manifest(3, START, END)


def test_a_batch_is_removed_as_a_whole(store: VerdictStore, tmp_path: Path) -> None:
    store.publish(write_attempt(store), START, END)
    store.remove_old(lambda batch_id: batch_id > 3)
    assert left_in(tmp_path) == ["3"]
    for _ in range(2):
        store.remove_old(lambda batch_id: batch_id == 3)
    assert left_in(tmp_path) == []
    assert store.manifest(3, START, END) is None


def test_what_tasks_of_a_plan_have_written_goes_when_no_verdict_names_it(
    store: VerdictStore, tmp_path: Path
) -> None:
    found = {"done": [("t", 0, 4)], "file": [("f", 1, 4, "{}", [("day", None)], "")]}
    made: dict[int, Manifest] = {}
    for batch_id, nonce in ((3, "a"), (4, "b")):
        attempt, path = plan_attempt(str(tmp_path), "s", nonce)
        Path(path).mkdir(parents=True)
        (Path(path) / "part-0.parquet").write_bytes(b"rows")
        manifest = Manifest(
            batch_id,
            attempt,
            {"part-0.parquet": 4},
            {},
            *planned(START, END),
            rows=found,
        )
        made[batch_id] = store.publish(manifest, START, END)
    assert made[3].rows["done"] == [("t", 0, 4)]
    assert Path(store.paths(made[3])[0]).read_bytes() == b"rows"
    Path(plan_attempt(str(tmp_path), "s", "killed")[1]).mkdir()
    store.remove_old(lambda _: False, made[4])
    assert left_in(tmp_path) == ["3", "4", "plan-a", "plan-b"]
    store.remove_old(lambda batch_id: batch_id == 3, made[4])
    assert left_in(tmp_path) == ["4", "plan-b"]


def left_in(directory: Path) -> list[str]:
    return sorted(each.name for each in (directory / "s").iterdir())


def leave(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"rows")


def objects_in(directory: Path) -> list[str]:
    """As `left_in`: in a store of objects a directory is there where a file of it is."""
    files = (each.relative_to(directory / "s") for each in directory.rglob("*") if each.is_file())
    return sorted({each.parts[0] for each in files})


def test_a_store_of_objects_is_listed_now_and_then(
    object_store: VerdictStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two lists goes what takes room, by its names."""
    lists: list[str] = []
    look = Directory.directories

    def counted(self: Directory, path: str) -> list[str]:
        lists.append(path)
        return look(self, path)

    monkeypatch.setattr(verdict_store, "_LIST_EVERY", 20)
    monkeypatch.setattr(Directory, "directories", counted)
    for batch_id in range(45):
        attempt, path = plan_attempt(str(tmp_path), "s", f"{batch_id:03}")
        if batch_id % 2:
            # What is small is in the manifest, which stays until the next list.
            made = Manifest(batch_id, attempt, {}, {}, *planned(START, END), inline={"part-0": ""})
        else:
            leave(Path(path) / "part-0")
            made = Manifest(batch_id, attempt, {"part-0": 4}, {}, *planned(START, END))
        if batch_id == 30:
            leave(Path(path) / "part-of-another-try")
            leave(tmp_path / "s" / "plan-killed" / "part-0")
        object_store.publish(made, START, END)
        object_store.remove_old(lambda other, last=batch_id: other < last, made)
        since = range(batch_id // 20 * 20 + 1, batch_id)
        left = [str(each) for each in since if each % 2] + [str(batch_id)]
        left += [] if batch_id % 2 else [attempt]
        left += ["plan-killed"] if 30 <= batch_id < 40 else []
        left += ["plan-030"] if 30 < batch_id < 40 else []
        assert objects_in(tmp_path) == sorted(left)
    assert len(lists) == 3


def test_a_run_asks_for_the_verdict_of_its_first_batch_alone(
    store: VerdictStore, tmp_path: Path
) -> None:
    """A driver that is late is found by the one that publishes behind it."""
    others = Manifest(4, "others", {}, {}, *planned(START, END))
    assert store.manifest(3, START, END) is None
    store.publish(write_attempt(store), START, END)
    VerdictStore(str(tmp_path), "s").publish(others, START, END)
    assert store.manifest(4, START, END) is None
    mine = replace(others, attempt="mine")
    assert store.publish(mine, START, END) == others


def test_a_full_disk_has_a_name(store: VerdictStore, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_attempt(store)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, damaged("VERDICT_UNWRITABLE"):
        patch.setattr(Directory, "write_once", full)
        store.publish(made, START, END)
    assert store.manifest(3, START, END) is None


def failed(
    cause: str, what: str = "[TASK_WRITE_FAILED] Task failed while writing rows to /v."
) -> str:
    return (
        f"Job aborted.\n{what}\n\tat org.apache.spark.Some.task(Some.scala:1)\nCaused by: {cause}\n"
    )


@pytest.mark.parametrize(
    "cause",
    [
        "java.io.IOException: No space left on device",
        "java.io.IOException: Mkdirs failed to create file:/v/_temporary/0 (exists=false)",
        "java.nio.file.AccessDeniedException: s3a://b/v: AccessDenied",
    ],
)
def test_a_place_where_spark_cannot_write_is_said_to_be_one(
    store: VerdictStore, cause: str
) -> None:
    with damaged("VERDICT_UNWRITABLE") as raised, store.writing():
        raise RuntimeError(failed(cause))
    assert cause in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        failed("java.lang.IllegalStateException: boom"),
        # Somewhere else, and in a Python worker, which is the source's or the job's.
        failed("java.io.IOException: No space left on device", "shuffle write of stage 3"),
        failed("org.apache.spark.api.python.PythonException: OSError: No space left on device"),
    ],
)
def test_other_failures_of_spark_are_raised_as_they_are(store: VerdictStore, text: str) -> None:
    with pytest.raises(RuntimeError, match=r"Job aborted"), store.writing():
        raise RuntimeError(text)


@pytest.mark.parametrize(
    ("location", "checkpoint", "named"),
    [
        ("s3://lake/commits_verdicts", "s3a://lake/_checkpoint", "s3a://lake/commits_verdicts"),
        ("s3a://lake/commits_verdicts", "s3a://lake/_checkpoint", "s3a://lake/commits_verdicts"),
        # There Spark's filesystem is one of s3.
        ("s3://lake/commits_verdicts", "s3://lake/_checkpoint", "s3://lake/commits_verdicts"),
        ("/lake/commits_verdicts", "s3a://lake/_checkpoint", "/lake/commits_verdicts"),
    ],
)
def test_spark_finds_verdicts_by_the_scheme_of_its_checkpoint(
    location: str, checkpoint: str, named: str
) -> None:
    assert as_spark_names(location, checkpoint) == named
