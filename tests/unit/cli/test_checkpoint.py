"""`keyrange checkpoint`: what it shows of a directory, what it exports, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore

from commands.commanding import document, refusal, run, succeed, text
from commands.documents import read_document
from keyrange.cli.checkpoint import commands
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.options.commits import CommitOptions
from keyrange.storage import directory
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch
from samples.old_checkpoints import make_old_checkpoint

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000123,"conf":{}}'
JVM_INITIAL = b'\0v1\n{"t":{"0":2}}'
JVM_INITIAL_2_1_0 = b'\x0d{"t":{"0":2}}'


def own(positions: Mapping[str, Any], **extra: Any) -> str:
    return json.dumps({"@keyrange": {"version": 1, **extra}, **positions})


FIRST = own({"t": {"0": 5}}, initial={"t": {"0": 1}}, topicIds={"t": "id"})
SECOND = own({"t": {"0": 8, "1": 4}}, initial={"t": {"1": 3}})


def make(
    root: Path, *batches: str, committed: int, files: Mapping[str, bytes] | None = None
) -> Path:
    """A checkpoint as Spark lays it out on a local disk, checksum files included."""
    contents = {"metadata": b'{"id":"the-id"}', **(files or {})}
    for number, lines in enumerate(batches):
        contents[f"offsets/{number}"] = f"v1\n{METADATA}\n{lines}".encode()
        contents[f"offsets/.{number}.crc"] = b"crc"
    for number in range(committed + 1):
        contents[f"commits/{number}"] = b'v1\n{"nextBatchWatermarkMs":0}'
        contents[f"commits/.{number}.crc"] = b"crc"
    for name, data in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def contents(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def test_the_positions_of_the_last_committed_batch_are_printed(tmp_path: Path) -> None:
    result = succeed(
        "checkpoint", "export", make(tmp_path, FIRST, SECOND, committed=1), "--format", "kafka"
    )
    assert result.stdout == '{"t":{"0":8,"1":4}}\n'
    assert result.stderr == ""
    table = succeed("checkpoint", "export", tmp_path, "--output", "text").stdout.split()
    assert table[-6:] == ["t", "0", "8", "t", "1", "4"]


def test_what_is_not_done_is_neither_left_out_nor_copied_over(tmp_path: Path) -> None:
    """A query that commits individually: behind its positions nobody would read it."""
    at, mark = TopicPartition("t", 0), {"sourceId": "s", "seq": 0}
    origin = make(tmp_path / "old", own({"t": {"0": 8}}, commits=mark), committed=0)
    table, target = tmp_path / "commits", tmp_path / "new"

    def commit(seq: int, *pending: int, scanned: int = 8) -> None:
        records = tuple(PendingRecord(offset, 7) for offset in pending)
        state = PartitionState("", 8, (KeyRangeState(SPACE, scanned, records),))
        given = Commit(seq, CommitKind.BATCH, "g", "s", "q", "r", seq - 1, 1, states={at: state})
        open_commit_table(CommitOptions(table=str(table)), "s").append(given)

    commit(1, 5)
    plain = succeed("checkpoint", "export", origin)
    assert plain.stdout == '{"t":{"0":8}}\n'
    assert "records below these positions may not be done" in " ".join(plain.stderr.split())
    told = succeed("checkpoint", "export", origin, "--commit-table", table)
    assert told.stdout == '{"t":{"0":5}}\n'
    assert "some of the last 3 offsets are not done" in " ".join(told.stderr.split())
    refused = refusal("checkpoint", "export", origin, "--to", target)
    assert "--commit-table has to be named" in refused
    refused = refusal("checkpoint", "export", origin, "--to", target, "--commit-table", table)
    assert "COMMIT_TERMS_CHANGED" in refused
    assert "1 records are not done" in refused
    assert not target.exists()
    commit(2)
    told = succeed("checkpoint", "export", origin, "--commit-table", table)
    assert (told.stdout, told.stderr) == ('{"t":{"0":8}}\n', "")
    succeed("checkpoint", "export", origin, "--to", target, "--commit-table", table)
    assert contents(target)["offsets/0"].endswith(b'{"t":{"0":8}}')
    # A batch that is planned besides says nothing of what is done, and is named as ever.
    second = own({"t": {"0": 12}}, commits={"sourceId": "s", "seq": 2})
    lines = (origin / "offsets" / "0").read_text().splitlines()[2]
    make(origin, lines, second, committed=0)
    told = succeed("checkpoint", "export", origin, "--commit-table", table)
    assert told.stdout == '{"t":{"0":8}}\n'
    assert "[BATCH_NOT_COMMITTED]" in refusal(
        "checkpoint", "export", origin, "--to", tmp_path / "newer", "--commit-table", table
    )
    assert "[COMMITS_MISSING]" in refusal(
        "checkpoint", "export", origin, "--commit-table", tmp_path / "of nobody"
    )


def test_what_is_absent_goes_on_where_it_stood(tmp_path: Path) -> None:
    absent = {"absent": [{"u": {"0": 5}}], "topicIds": {"t": "a", "u": "b"}}
    origin = make(tmp_path / "old", own({"t": {"0": 8}}, **absent), committed=0)
    assert succeed("checkpoint", "export", origin).stdout == '{"t":{"0":8},"u":{"0":5}}\n'
    succeed("checkpoint", "export", origin, "--to", tmp_path / "new")
    assert contents(tmp_path / "new")["offsets/0"].endswith(b'{"t":{"0":8},"u":{"0":5}}')


def test_an_unfinished_batch_is_said_and_read_again(tmp_path: Path) -> None:
    result = succeed("checkpoint", "export", make(tmp_path, FIRST, SECOND, committed=0))
    assert result.stdout == '{"t":{"0":5,"1":3}}\n'
    assert result.stderr.startswith("batch 1 is planned and not committed: ")


def test_a_source_is_named_where_there_are_several(tmp_path: Path) -> None:
    lines = "\n".join(["-", FIRST, '{"u":{"0":7}}'])
    make(tmp_path, lines, committed=0)
    assert text("checkpoint", "export", tmp_path, "--source", 2) == '{"u":{"0":7}}\n'
    assert text("checkpoint", "export", tmp_path, "--source", 1) == '{"t":{"0":5}}\n'
    assert "[INVALID_OPTIONS] --source must be named; those of this query are: 1 (t), 2 (u)" in (
        refusal("checkpoint", "export", tmp_path)
    )
    for number in (0, 3):
        assert f"--source {number} is no source of Kafka's; those of this query are: 1 (t)" in (
            refusal("checkpoint", "export", tmp_path, "--source", number)
        )


def test_partitions_without_a_position_are_named(tmp_path: Path) -> None:
    second = own({"t": {"0": 8, "1": 4, "2": 1}})
    text = refusal("checkpoint", "export", make(tmp_path, FIRST, second, committed=0))
    assert "[POSITION_NOT_ON_FILE]" in text
    assert "the next offset of t-1, t-2 to read is (source=0)" in text


def test_a_commit_whose_offsets_are_gone_is_refused(tmp_path: Path) -> None:
    make(tmp_path, FIRST, committed=3)
    assert "[POSITION_NOT_ON_FILE]" in refusal("checkpoint", "export", tmp_path)
    assert "[POSITION_NOT_ON_FILE]" in refusal(
        "checkpoint", "export", tmp_path, "--to", tmp_path / "new"
    )


def test_a_copy_holds_everything_and_keyranges_offsets_in_plain_form(tmp_path: Path) -> None:
    other = {
        "state/0/0/1.delta.lz4": b"\x04\x22 not unpacked",
        "state/0/0/.1.delta.lz4.crc": b"crc",
        "sources/1/0": b"another source's",
        ".metadata.crc": b"crc",
    }
    old = make(tmp_path / "old", f"{FIRST}\n-", f"{SECOND}\n-", committed=1, files=other)
    before = contents(old)
    result = succeed("checkpoint", "export", old, "--to", tmp_path / "new")

    expected = {name: data for name, data in before.items() if not name.startswith("offsets/")}
    expected["offsets/0"] = f'v1\n{METADATA}\n{{"t":{{"0":5}}}}\n-'.encode()
    expected["offsets/1"] = f'v1\n{METADATA}\n{{"t":{{"0":8,"1":4}}}}\n-'.encode()
    expected["sources/0/0"] = b'\0v1\n{"t":{"0":1}}'
    assert contents(tmp_path / "new") == expected
    assert contents(old) == before
    assert read_document(result.stdout) == {
        "checkpoint": str(tmp_path / "new"),
        "query_id": "the-id",
        "sources": [0],
        "last_committed": 1,
    }


def test_a_copy_keeps_the_jvm_connectors_own_initial_offsets(tmp_path: Path) -> None:
    """A query that the JVM connector began and keyrange went on with."""
    files = {"sources/0/0": JVM_INITIAL_2_1_0}
    make(tmp_path / "a", '{"t":{"0":5}}', own({"t": {"0": 8}}), committed=1, files=files)
    succeed("checkpoint", "export", tmp_path / "a", "--to", tmp_path / "b")
    assert contents(tmp_path / "b")["sources/0/0"] == JVM_INITIAL_2_1_0


def test_no_copy_is_made_of_an_unfinished_batch(tmp_path: Path) -> None:
    old = make(tmp_path / "old", FIRST, SECOND, committed=0)
    text = refusal("checkpoint", "export", old, "--to", tmp_path / "new")
    assert "[BATCH_NOT_COMMITTED] planned and not committed: batch 1." in text
    assert "without --to" in text
    assert not (tmp_path / "new").exists()


def test_no_copy_is_made_to_where_something_is(tmp_path: Path) -> None:
    old, new = make(tmp_path / "old", FIRST, committed=0), tmp_path / "new"
    new.mkdir()
    (tmp_path / "file").write_text("")
    for taken in (tmp_path / "file", old):
        refusal("checkpoint", "export", old, "--to", taken)
    assert "lies in the checkpoint" in refusal("checkpoint", "export", old, "--to", old / "new")
    succeed("checkpoint", "export", old, "--to", new)
    before = contents(new)
    assert "exists and is not empty" in refusal("checkpoint", "export", old, "--to", new)
    assert contents(new) == before


def test_a_checkpoint_of_the_jvm_connector_needs_no_copy(tmp_path: Path) -> None:
    old = make(tmp_path / "old", '{"t":{"0":5}}', committed=0)
    assert "--to has nothing to change" in refusal(
        "checkpoint", "export", old, "--to", tmp_path / "new"
    )


def test_a_query_that_goes_on_meanwhile_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = make(tmp_path / "old", FIRST, committed=0), tmp_path / "new"
    write = directory.Directory.write

    def go_on(directory: Any, path: str, chunks: Any) -> None:
        (old / "offsets" / "1").write_text(f"v1\n{METADATA}\n{SECOND}")
        write(directory, path, chunks)

    monkeypatch.setattr(directory.Directory, "write", go_on)
    assert "stop it first" in refusal("checkpoint", "export", old, "--to", new)
    assert not (new / "metadata").exists()


def test_a_copy_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(directory: Any, path: str, chunks: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(directory.Directory, "write", full)
    old = make(tmp_path / "old", FIRST, committed=0)
    text = refusal("checkpoint", "export", old, "--to", tmp_path / "new")
    assert "[CHECKPOINT_NOT_WRITTEN] the copy is not complete: no space left" in text


def test_stores_are_reached_by_the_uris_that_spark_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "lake" / "old", FIRST, committed=0)
    asked = []

    def open_store(uri: str, settings: Mapping[str, str]) -> Any:
        asked.append(uri)
        return LocalStore(tmp_path / uri.partition("://")[2], mkdir=True)

    monkeypatch.setattr(directory, "open_store", open_store)
    succeed("checkpoint", "export", "s3a://lake/old/", "--to", "s3://lake/new")
    assert asked == ["s3://lake/old", "s3://lake/new"]
    shown = document("checkpoint", "show", "s3://lake/new")
    assert shown["query_id"] == "the-id"
    assert shown["sources"] == [
        {"source": 0, "written_by": "kafka", "commit_mode": "batch", "initial": {"t": {"0": 1}}}
    ]


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "{}/"])
def test_local_directories_are_reached_by_path_and_uri(tmp_path: Path, form: str) -> None:
    make(tmp_path / "a", FIRST, committed=0)
    assert text("checkpoint", "export", form.format(tmp_path / "a")) == '{"t":{"0":5}}\n'
    succeed("checkpoint", "export", tmp_path / "a", "--to", form.format(tmp_path / "b"))
    assert (tmp_path / "b" / "metadata").exists()


def test_who_wrote_the_offsets_and_where_they_began_is_shown(tmp_path: Path) -> None:
    files = {"sources/0/0": JVM_INITIAL, "sources/2/0": b"another source's"}
    lines = "\n".join(['{"t":{"0":5}}', own({"u": {"0": 1}}), '{"logOffset":0}'])
    make(tmp_path, lines, committed=-1, files=files)
    shown = document("checkpoint", "show", tmp_path)
    assert shown["sources"] == [
        {"source": 0, "written_by": "kafka", "commit_mode": "batch", "initial": {"t": {"0": 2}}},
        {"source": 1, "written_by": "keyrange", "commit_mode": "batch", "initial": None},
        {"source": 2, "written_by": None, "commit_mode": None, "initial": None},
    ]
    assert shown["positions"][0] == {
        "source": 0,
        "topic": "t",
        "partition": 0,
        "committed": None,
        "planned": 5,
        "from_offset": 2,
    }
    printed = text("checkpoint", "show", tmp_path)
    assert "Spark's Kafka connector" in printed
    assert '{"t":{"0":2}}' in printed
    assert text("checkpoint", "export", tmp_path, "--source", 0) == '{"t":{"0":2}}\n'


def test_where_sparks_source_went_back_no_offsets_are_read(tmp_path: Path) -> None:
    """As where a topic was made anew."""
    make_checkpoint(tmp_path)
    for batch, position in enumerate((500, 20)):
        plan_batch(tmp_path, batch, 1_000 * batch, {"0": position})
        path = tmp_path / "offsets" / str(batch)
        head, _, _ = path.read_text().partition('{"@keyrange"')
        path.write_text(head + json.dumps({"t": {"0": position}}))
        commit_batch(tmp_path, batch)
    shown = text("checkpoint", "show", tmp_path)
    assert "[500, 20)" in shown
    assert "-480" not in shown


def test_settings_of_an_object_store_reach_checkpoint_and_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Mapping[str, str]] = []

    def opened(location: str, storage: Mapping[str, str] | None = None) -> directory.Directory:
        given.append(dict(storage or {}))
        return directory.Directory(location)

    monkeypatch.setattr(commands, "open_directory", opened)
    make_checkpoint(tmp_path)
    plan_batch(tmp_path, 0, 1_000, {"0": 5})
    commit_batch(tmp_path, 0)
    option = ("--option", "objectStore.aws_region=there")
    succeed("checkpoint", "show", tmp_path, *option)
    succeed("checkpoint", "export", tmp_path, *option)
    assert [each["aws_region"] for each in given] == ["there", "there"]
    # As for every command, a store that does not answer is not waited for as a query does.
    assert all("retry_timeout" in each for each in given)


@pytest.mark.parametrize(
    ("data", "condition"),
    [(b"\0v9\n{}", "UNSUPPORTED_CHECKPOINT"), (b"\0v1\n[", "INVALID_OFFSETS")],
)
def test_initial_offsets_that_cannot_be_read_are_named(
    tmp_path: Path, data: bytes, condition: str
) -> None:
    make(tmp_path, '{"t":{"0":5}}', committed=0, files={"sources/0/0": data})
    text = refusal("checkpoint", "show", tmp_path)
    assert f"[{condition}]" in text
    assert f"(path={tmp_path}/sources/0/0)" in text


@pytest.mark.parametrize("place", ["nowhere", "nope://x", "s3://", "file"])
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    named = place if "://" in place else tmp_path / place
    assert "[INVALID_CHECKPOINT_PATH]" in refusal("checkpoint", "show", named)
    assert "[INVALID_CHECKPOINT_PATH]" in refusal("checkpoint", "export", named)


def test_a_checkpoint_without_a_batch_is_refused(tmp_path: Path) -> None:
    make(tmp_path, committed=-1)
    assert "holds no batch" in refusal("checkpoint", "export", tmp_path)


def test_a_source_cannot_be_named_for_a_copy(tmp_path: Path) -> None:
    result = run(
        "checkpoint", "export", make(tmp_path, FIRST, committed=0), "--to", "x", "--source", 0
    )
    assert result.exit_code == 2


def test_a_checkpoint_of_spark_2_4_is_shown_and_exported(tmp_path: Path) -> None:
    """Its metadata has other settings of the session, and its partitions stand in another order."""
    home = make_old_checkpoint(tmp_path / "a", committed=1)
    shown = document("checkpoint", "show", home)
    initial = {"orders": {"0": 2, "1": 0}}
    assert shown["sources"] == [
        {"source": 0, "written_by": "kafka", "commit_mode": "batch", "initial": initial}
    ]
    assert [row["planned_at"][:19] for row in shown["batches"]] == [
        "2019-05-16T09:46:40",
        "2019-05-16T09:46:50",
    ]
    assert [(row["committed"], row["planned"]) for row in shown["positions"]] == [(5, 8), (4, 7)]
    assert json.loads(text("checkpoint", "export", home)) == {"orders": {"0": 5, "1": 4}}
    fresh = make_old_checkpoint(tmp_path / "b", committed=0)
    assert json.loads(text("checkpoint", "export", fresh)) == initial
    done = make_old_checkpoint(tmp_path / "c")
    assert "--to has nothing to change" in refusal(
        "checkpoint", "export", done, "--to", tmp_path / "d"
    )
