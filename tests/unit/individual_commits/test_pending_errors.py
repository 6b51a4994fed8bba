"""The errors of pending records: kept while they are pending, and nothing rests on them."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from keyrange.individual_commits import pending_errors as module
from keyrange.individual_commits.model.batch_results import Failure, PendingError
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.model.state_columns import StateColumns, columns_of
from keyrange.individual_commits.pending_errors import PendingErrors, pending_errors
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.storage import directory
from keyrange.work.model.outcome import Cause

PLACE = TopicPartition("t", 0)


def states(*offsets: int) -> StateColumns:
    pending = tuple(PendingRecord(at, at) for at in offsets)
    state = PartitionState("", 5_000, (KeyRangeState(SPACE, 5_000, pending),))
    return columns_of({PLACE: state})


def failed(offset: int, error: str) -> Failure:
    return Failure(PLACE, offset, Cause.REJECTED, error)


def test_an_error_is_kept_until_its_record_is_done(tmp_path: Path) -> None:
    kept = PendingErrors(str(tmp_path), "s")
    kept.update(states(3, 5), [failed(3, "KeyError: 3"), failed(5, "KeyError: 5")])
    kept.update(states(3, 5), [failed(5, "ValueError: 5")])
    both = {
        (PLACE, 3): PendingError("KeyError: 3", "KeyError"),
        (PLACE, 5): PendingError("ValueError: 5", "ValueError"),
    }
    assert pending_errors(f"{tmp_path}/", "s") == both
    # The next run of the query knows them too.
    later = PendingErrors(str(tmp_path), "s")
    later.update(states(5), [])
    assert pending_errors(str(tmp_path), "s") == {(PLACE, 5): both[PLACE, 5]}
    assert pending_errors(str(tmp_path), "other") == {}
    later.update(states(), [])
    assert list((tmp_path / "s").iterdir()) == []


def test_nothing_is_written_where_nothing_changes(tmp_path: Path) -> None:
    kept = PendingErrors(str(tmp_path), "s")
    kept.update(states(), [])
    assert list(tmp_path.iterdir()) == []
    kept.update(states(3), [failed(3, "KeyError: 3")])
    [file] = (tmp_path / "s").iterdir()
    file.unlink()
    kept.update(states(3, 9), [])
    assert not file.exists()


def test_the_texts_of_the_lowest_offsets_are_kept_and_the_names_of_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TEXTS_MAX", 2)
    monkeypatch.setattr(module, "_NAMES_MAX", 4)
    kept = PendingErrors(str(tmp_path), "s")
    kept.update(states(*range(9)), [failed(at, f"KeyError: {at}") for at in reversed(range(9))])
    assert pending_errors(str(tmp_path), "s") == {
        (PLACE, 0): PendingError("KeyError: 0", "KeyError"),
        (PLACE, 1): PendingError("KeyError: 1", "KeyError"),
        (PLACE, 2): PendingError("", "KeyError"),
        (PLACE, 3): PendingError("", "KeyError"),
    }


def test_of_several_partitions_the_lowest_offsets_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_NAMES_MAX", 3)
    other = TopicPartition("s", 7)
    known = states(0, 1, 2)
    kept = PendingErrors(str(tmp_path), "s")
    found = [Failure(p, at, Cause.REJECTED, "KeyError") for p in (other, PLACE) for at in range(3)]
    kept.update(columns_of({PLACE: known[PLACE], other: known[PLACE]}), found)
    assert sorted(at for _, at in pending_errors(str(tmp_path), "s")) == [0, 0, 1]


def test_where_they_cannot_be_read_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "s" / "pending_errors.json").mkdir(parents=True)
    assert pending_errors(str(tmp_path), "s") == {}


def test_a_text_of_the_job_has_no_name_and_a_record_without_an_error_is_not_kept(
    tmp_path: Path,
) -> None:
    kept = PendingErrors(str(tmp_path), "s")
    kept.update(states(3, 5), [failed(3, "KeyError"), failed(5, "KeyError")])
    job = Failure(PLACE, 3, Cause.REJECTED, "price: s3cret", is_exception=False)
    kept.update(states(3, 5), [job, Failure(PLACE, 5, Cause.UNMENTIONED, "")])
    assert pending_errors(str(tmp_path), "s") == {(PLACE, 3): PendingError("price: s3cret", "")}


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 2, "errors": [3]}']
)
def test_what_cannot_be_read_is_missing(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "s" / "pending_errors.json"
    file.parent.mkdir()
    file.write_bytes(data)
    assert pending_errors(str(tmp_path), "s") == {}
    PendingErrors(str(tmp_path), "s").update(states(3), [failed(3, "KeyError")])
    assert pending_errors(str(tmp_path), "s") == {(PLACE, 3): PendingError("KeyError", "KeyError")}


def test_in_a_store_a_write_that_failed_is_told_with_the_next_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory, "open_store", lambda *_: MemoryStore())
    kept = PendingErrors("s3://lake/verdicts", "s")
    with monkeypatch.context() as broken:
        broken.setattr(directory.Directory, "write", _has_no_room)
        kept.update(states(3), [failed(3, "KeyError")])
        with pytest.raises(PermissionError, match="no more room"):
            kept.update(states(3), [])
    kept.update(states(3), [failed(3, "ValueError")])
    # Which waits for the write before.
    kept.update(states(3, 4), [failed(4, "OSError")])
    assert [each.text for _, each in sorted(kept._known.items())] == ["ValueError", "OSError"]


def _has_no_room(*_: object) -> None:
    raise PermissionError("no more room")
