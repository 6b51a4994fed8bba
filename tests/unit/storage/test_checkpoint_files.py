"""A checkpoint that is read while its query runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from keyrange.errors import InvalidError, KeyrangeError, UnavailableError
from keyrange.storage import directory
from keyrange.storage.checkpoint_files import load_progress, open_directory
from keyrange.storage.directory import Directory, no_place
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = make_checkpoint(tmp_path / "c")
    for number in range(4):
        plan_batch(made, number, 1_000 * number, {"0": number})
    commit_batch(made, 2)
    return made


class Removing(Directory):
    """Removes batches between listing and reading them, as Spark may."""

    def __init__(self, home: Path, *removed: int) -> None:
        super().__init__(str(home))
        self._gone = [home / "offsets" / str(number) for number in removed]

    def numbered(self, directory: str) -> list[int]:
        found = super().numbered(directory)
        if directory == "offsets":
            for path in self._gone:
                path.unlink()
        return found


def test_all_batches_that_are_there_are_read(home: Path) -> None:
    progress = load_progress(open_directory(str(home)))
    assert [batch.batch_id for batch in progress.planned] == [0, 1, 2, 3]
    assert progress.committed == 2


def test_the_oldest_batches_may_go_while_it_is_read(home: Path) -> None:
    progress = load_progress(Removing(home, 0, 1))
    assert [batch.batch_id for batch in progress.planned] == [2, 3]
    assert progress.committed == 2


def test_the_last_batch_may_not(home: Path) -> None:
    with pytest.raises(InvalidError, match="INVALID_CHECKPOINT_PATH"):
        load_progress(Removing(home, 0, 1, 2, 3))


class Refusing(Directory):
    """A store that answers, and says no."""

    def numbered(self, directory: str) -> list[int]:
        raise OSError("AWS Error ACCESS_DENIED")


def test_a_store_that_refuses_is_no_wrong_path(home: Path) -> None:
    with pytest.raises(UnavailableError, match=r"CHECKPOINT_UNREADABLE.*ACCESS_DENIED.*AWS_"):
        load_progress(Refusing(str(home)))


class Going(Directory):
    """A batch is planned and committed between the two listings."""

    def __init__(self, home: Path) -> None:
        super().__init__(str(home))
        self._home, self._listed = home, 0

    def numbered(self, directory: str) -> list[int]:
        self._listed += 1
        if self._listed == 2:
            plan_batch(self._home, 4, 4_000, {"0": 4})
            commit_batch(self._home, 4)
        return super().numbered(directory)


def test_a_batch_that_is_done_meanwhile_is_an_open_one(home: Path) -> None:
    progress = load_progress(Going(home))
    assert (progress.committed, progress.planned[-1].batch_id) == (2, 4)
    assert [batch.batch_id for batch in progress.unfinished] == [3, 4]


@pytest.mark.parametrize("name", ["offsets/3", "offsets/1", "metadata"])
def test_no_beginning_of_a_file_is_taken_for_all_of_it(home: Path, name: str) -> None:
    """Where a store shows a file before all of it is there: no batch goes on from half of it."""
    first = (home / "offsets" / "3").read_text()
    # A second source, so that a file that ends behind a line is one of the beginnings.
    for number in range(4):
        file = home / "offsets" / str(number)
        file.write_text(f"{file.read_text()}{first.splitlines()[2]}\n")
    whole = (home / name).read_bytes()
    for length in range(len(whole.rstrip())):
        (home / name).write_bytes(whole[:length])
        with pytest.raises(KeyrangeError, match=r"UNSUPPORTED_CHECKPOINT|INVALID_CHECKPOINT_PATH"):
            load_progress(open_directory(str(home)))
    (home / name).write_bytes(whole.rstrip())
    assert load_progress(open_directory(str(home))).planned[-1].batch_id == 3


class Late(Directory):
    """A store that lists a file before, or after, it can be read."""

    def __init__(self, home: Path, hidden: str = "", unread: str = "") -> None:
        super().__init__(str(home))
        self._hidden, self._unread = hidden, unread

    def numbered(self, directory: str) -> list[int]:
        found = super().numbered(directory)
        return [each for each in found if f"{directory}/{each}" != self._hidden]

    def read(self, path: str) -> bytes:
        if path == self._unread:
            raise FileNotFoundError(path)
        return super().read(path)


def test_what_is_not_listed_yet_makes_a_batch_an_open_one_or_unknown(home: Path) -> None:
    """Never one that is done, and never one with other offsets."""
    progress = load_progress(Late(home, hidden="commits/2"))
    assert (progress.committed, len(progress.unfinished)) == (None, 4)
    progress = load_progress(Late(home, hidden="offsets/3"))
    assert (progress.committed, [b.batch_id for b in progress.unfinished]) == (2, [])
    assert [b.batch_id for b in load_progress(Late(home, hidden="offsets/1")).planned] == [0, 2, 3]


def test_the_last_batch_and_the_querys_id_have_to_be_readable(home: Path) -> None:
    for path in ("offsets/3", "metadata"):
        with pytest.raises(InvalidError, match="INVALID_CHECKPOINT_PATH"):
            load_progress(Late(home, unread=path))
    assert load_progress(Late(home, unread="offsets/0")).planned[0].batch_id == 1


def test_a_commit_that_is_empty_is_one_as_spark_takes_it(home: Path) -> None:
    (home / "commits" / "3").write_bytes(b"")
    assert load_progress(open_directory(str(home))).committed == 3


def test_what_is_in_the_place_of_a_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    (tmp_path / "table" / "_delta_log" / "00000000000000000000.json").write_text("{}")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes").write_text("hello")
    for name, said in (
        ("missing", "the directory is empty, or not there"),
        ("table", "a Delta table is in the place of the checkpoint; `keyrange commits show`"),
        ("files", "the directory has no file metadata"),
    ):
        with pytest.raises(InvalidError, match=said):
            load_progress(open_directory(str(tmp_path / name)))


def test_what_is_in_a_place_is_asked_of_the_store_that_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another one, without its settings, would be a store that refuses."""
    opened, store = [], MemoryStore()
    store.put("_delta_log/00000000000000000000.json", b"{}")
    monkeypatch.setattr(directory, "open_store", lambda *given: opened.append(given) or store)
    settings = {"aws_region": "x"}
    with pytest.raises(InvalidError, match="a Delta table is in the place of the checkpoint"):
        load_progress(open_directory("s3://lake/table", settings))
    assert opened == [("s3://lake/table", settings)]


def test_a_file_in_the_way_of_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for below in ("file", "file/table"):
        for scheme in ("", "file://"):
            assert no_place(f"{scheme}{tmp_path / below}") == f"{tmp_path / 'file'} is a file"
    for free in (str(tmp_path / "new" / "table"), f"s3://{tmp_path / 'file'}"):
        assert no_place(free) is None
