"""A directory on this machine and in a store of objects: the same calls, with the same outcome."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from keyrange.errors import KeyrangeError
from keyrange.storage import directory as module
from keyrange.storage import object_store
from keyrange.storage.directory import Directory
from keyrange.storage.object_store import StoreFailed, is_unanswered, open_store, told
from tables.racing_writers import in_threads

NAMES = ("plain", "k=a%20b", "with space", "é", "a#1x", ".hidden")


@pytest.fixture(params=["local", "store"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Directory:
    if request.param == "local":
        return Directory(str(tmp_path / "d"))
    monkeypatch.setattr(module, "open_store", lambda *_: MemoryStore())
    return Directory("s3://lake/d")


def test_what_is_written_is_read_listed_and_removed(place: Directory) -> None:
    assert place.is_empty()
    for name in NAMES:
        place.write(f"deep/{name}", name.encode())
    place.write("7", b"")
    assert not place.is_empty()
    assert place.sizes("deep") == {name: len(name.encode()) for name in NAMES}
    assert place.files() == sorted(["7", *(f"deep/{name}" for name in NAMES)])
    assert (place.directories(""), place.numbered("")) == (["deep"], [7])
    assert [place.read(f"deep/{name}").decode() for name in NAMES] == [*NAMES]
    place.remove_files(["deep/plain", "deep/none", "deep/.hidden"])
    assert len(place.sizes("deep")) == len(NAMES) - 2
    place.remove(["deep", "none"])
    place.remove([])
    assert place.files() == ["7"]


def test_what_stands_for_a_directory_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Hadoop writes it to a store."""
    lists, there = [{"path": name, "size": size} for name, size in LISTED], {"a/x", "empty"}

    class Store:
        def list(self, _: str) -> Any:
            return [lists]

        def list_with_delimiter(self, _: str) -> Any:
            return {"common_prefixes": ["a"], "objects": lists[:1]}

        def head(self, path: str) -> Any:
            if path not in there:
                raise FileNotFoundError(path)
            return {"path": path}

    monkeypatch.setattr(module, "open_store", lambda *_: Store())
    place = Directory("s3://lake/d")
    assert place.files() == ["a/x", "empty"]
    assert place.sizes("") == {}


LISTED = (("", 0), ("a", 0), ("a/x", 1), ("empty", 0))


def test_what_is_not_there(place: Directory) -> None:
    assert (place.sizes("none"), place.directories("none"), place.numbered("none")) == ({}, [], [])
    assert (place.entry("none"), place.read_if_there("none"), place.tag("none")) == (None,) * 3
    assert place.size("none") is None
    for read in (place.read, place.open):
        with pytest.raises(FileNotFoundError):
            read("none")


def test_of_those_who_write_a_file_once_the_first_does(place: Directory) -> None:
    made: dict[int, str | None] = {}

    def write(number: int) -> None:
        made[number] = place.write_once("once", b"%d" % number)

    assert in_threads(8, write) == []
    [winner] = [number for number, tag in made.items() if tag is not None]
    assert place.read("once") == b"%d" % winner
    # Its client may have tried again what the store had done.
    entry = place.entry("once")
    assert entry is not None
    assert place.write_once("once", b"%d" % winner) == made[winner] == entry.tag


def test_a_tag_changes_with_its_file(place: Directory) -> None:
    place.write("file", b"one")
    first = place.tag("file")
    place.write("file", b"another")
    assert place.tag("file") not in (None, first)


@pytest.mark.parametrize("rows", [3, 300_000])
def test_arrow_writes_and_reads_files(place: Directory, rows: int) -> None:
    table = pa.table({"at": pa.array(range(rows)), "text": [os.urandom(8) for _ in range(rows)]})
    with place.create("deep/file.parquet") as out:
        pq.write_table(table, out, row_group_size=50_000)
    size = place.size("deep/file.parquet")
    assert size is not None
    assert (size > module._WHOLE_BYTES) == (rows > 3)
    with place.open("deep/file.parquet") as source:
        assert pq.read_table(source) == table


def test_only_old_files_are_removed(place: Directory) -> None:
    for name in ("kept", "old"):
        place.write(name, b"")
    place.remove_older("", {"kept"}, 0)
    assert place.files() == ["kept", "old"]
    place.remove_older("", {"kept"}, 1 << 50)
    assert place.files() == ["kept"]


def test_of_millions_a_page_is_in_memory_at_a_time(
    place: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(250):
        place.write(f"d/{number}", b"")
    place.write("d/e/1", b"")
    place.write("d2/1", b"")
    counts: list[int] = []
    whole = place.remove_files

    def remove_files(paths: Iterable[str]) -> None:
        found = [*paths]
        counts.append(len(found))
        whole(found)

    monkeypatch.setattr(module, "_PAGE", 100)
    monkeypatch.setattr(place, "remove_files", remove_files)
    place.remove_older("none", {"7"}, 1 << 50)
    place.remove_older("d", {"7"}, 1 << 50)
    assert place.files() == ["d/7", "d/e/1", "d2/1"]
    assert (sum(counts), max(counts)) == (249, 100)


def test_one_directory_holds_another(tmp_path: Path) -> None:
    home = Directory(str(tmp_path))
    assert home.holds(Directory(f"file://{tmp_path}/x/"))
    assert home.holds(home)
    assert not home.holds(Directory(f"{tmp_path}x"))
    assert not home.holds(Directory("memory:///x"))


def test_failures_are_the_systems_where_it_has_a_number(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = Directory(str(tmp_path))
    with pytest.raises(NotADirectoryError) as raised:
        place.read("file/x")
    assert is_unanswered(raised.value)
    failed = GenericError(
        'no answer, by hush\n\nDebug source:\n Os { kind: A, message: "refused" }'
    )
    with pytest.raises(StoreFailed) as unanswered, told({"aws_secret_access_key": "hush"}):
        raise failed
    assert str(unanswered.value) == "no answer, by ***: refused"
    assert is_unanswered(unanswered.value)
    assert not is_unanswered(FileNotFoundError(2, "x"))
    assert not is_unanswered(pa.ArrowInvalid("no Parquet"))
    assert not is_unanswered(OSError("Arrow's, of bytes that are damaged"))


def test_settings_of_store_and_client_go_where_they_belong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("obstore.store.from_url", lambda uri, **more: given.update(more))
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    settings = {"AWS_REGION": "x", "aws_timeout": "5s", "retry_timeout": "7s", "max_retries": "2"}
    open_store("s3://b", settings | {"aws_s3_locking_provider": "dynamodb"})
    assert given["config"] == {"aws_region": "x"}
    assert given["client_options"] == {
        "user_agent": "keyrange",
        "allow_http": "true",
        "timeout": "5s",
    }
    retries = given["retry_config"]
    assert (retries["max_retries"], retries["retry_timeout"].total_seconds()) == (2, 7)
    assert object_store._RETRIES["max_retries"] == 10


@pytest.mark.parametrize(
    ("setting", "value"),
    [("max_retries", "often"), ("retry_timeout", "5"), ("timeout", "5"), ("AWS_TIMEOUT", "soon")],
)
def test_a_value_that_no_setting_takes_is_a_wrong_option(setting: str, value: str) -> None:
    """And no store that fails, or checkpoint that is not there."""
    with pytest.raises(KeyrangeError, match=rf"INVALID_OPTIONS.*{value}") as refused:
        Directory("s3://b", {setting: value})
    assert "timeout" in setting.lower() or f"objectStore.{setting}" in str(refused.value)


def test_the_time_of_all_tries_has_any_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("obstore.store.from_url", lambda uri, **more: given.update(more))
    for text, seconds in (("1m", 60), ("500ms", 0.5), ("20 s", 20)):
        open_store("s3://b", {"retry_timeout": text})
        assert given["retry_config"]["retry_timeout"].total_seconds() == seconds


@pytest.mark.parametrize("uri", ["foo://x/y", "hdfs://n/x"])
def test_a_uri_of_no_store_is_a_wrong_one(uri: str) -> None:
    with pytest.raises(ValueError, match=uri):
        Directory(uri)


def test_a_setting_that_no_store_knows_is_named() -> None:
    with pytest.raises(KeyrangeError, match=r"INVALID_OPTIONS.*aws_frobnicate"):
        Directory("s3://b", {"aws_frobnicate": "1"})
