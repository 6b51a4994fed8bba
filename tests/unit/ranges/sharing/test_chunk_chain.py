"""The chain of chunks: what is known of them, and who works on what, across processes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from keyrange.ranges.sharing.chunk_chain import Chain, ChainEnd, ChunkState, Link


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "shared"


def extended(
    chain: Chain, until_offset: int, size: int, state: ChunkState = ChunkState.MEMORY
) -> int:
    """Add a finished chunk; returns its index."""
    end = chain.claim_end(wait_s=60)
    assert end is not None
    chain.extend(end, until_offset, size)
    chain.finish(end.index, state)
    return end.index


def in_child(work: Callable[[], object]) -> int:
    """Run something in a forked process that ends without cleaning up; returns its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = int(bool(work()))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_links_follow_one_another(place: Path) -> None:
    chain = Chain(place, 3, 0, from_offset=100)
    assert (len(chain), chain.link(0), chain.link(5)) == (0, None, None)
    extended(chain, 110, 7)
    extended(chain, 2**40, 9, ChunkState.SPILL)

    assert len(chain) == 2
    other = Chain(place, 3, 2, from_offset=100)
    assert other.link(0) == Link(0, 100, 110, 7, ChunkState.MEMORY)
    assert other.link(1) == Link(1, 110, 2**40, 9, ChunkState.SPILL)
    assert other.link(2) is None
    assert other.claim_end(wait_s=60) == ChainEnd(2, 2**40, 16)
    other.close()
    chain.close()


def test_a_finished_chunk_leaves_no_lock_behind(place: Path) -> None:
    """Who looks for room in a directory goes through all that is in it, chunk after chunk."""
    chain, other = Chain(place, 2, 0, 0), Chain(place, 2, 1, 0)
    for _ in range(3):
        extended(chain, 10, 1)
        other.wait(0, 60)
    assert [path.name for path in place.iterdir()] == ["chain"]
    other.close()
    chain.close()


def test_only_one_holds_the_end(place: Path) -> None:
    one, two = Chain(place, 2, 0, 0), Chain(place, 2, 1, 0)
    end = one.claim_end()
    assert end == ChainEnd(0, 0, 0)
    assert two.claim_end() is None
    one.extend(end, 10, 1)
    assert two.claim_end() == ChainEnd(1, 10, 1)
    two.release_end()
    assert one.claim_end() == ChainEnd(1, 10, 1)
    one.close()
    assert two.claim_end() == ChainEnd(1, 10, 1)
    two.close()


def test_a_chunk_belongs_to_its_maker_until_it_is_finished(place: Path) -> None:
    maker, other = Chain(place, 2, 0, 0), Chain(place, 2, 1, 0)
    end = maker.claim_end(wait_s=60)
    assert end is not None
    maker.extend(end, 10, 1)
    link = other.link(0)
    assert link is not None
    assert link.state is ChunkState.PENDING
    assert not other.try_lock(0)
    maker.finish(0, ChunkState.MEMORY)
    other.wait(0, 60)
    assert other.try_lock(0)
    maker.close()
    other.close()


def test_a_maker_that_dies_leaves_its_chunk_pending_and_free(place: Path) -> None:
    def make() -> None:
        chain = Chain(place, 2, 0, 0)
        end = chain.claim_end(wait_s=60)
        assert end is not None
        chain.extend(end, 10, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(make) == -signal.SIGKILL
    chain = Chain(place, 2, 1, 0)
    chain.wait(0, 60)
    link = chain.link(0)
    assert link is not None
    assert link.state is ChunkState.PENDING
    assert chain.try_lock(0)
    assert chain.claim_end() == ChainEnd(1, 10, 1)
    chain.close()


def test_who_dies_with_the_end_in_hand_leaves_it_to_others(place: Path) -> None:
    assert in_child(lambda: Chain(place, 2, 0, 0).claim_end(wait_s=60)) == 1
    chain = Chain(place, 2, 1, 0)
    assert chain.claim_end() == ChainEnd(0, 0, 0)
    chain.close()


def test_a_row_that_was_not_written_whole_is_no_chunk(place: Path) -> None:
    chain = Chain(place, 2, 0, 0)
    extended(chain, 10, 1)
    whole = (place / "chain").stat().st_size
    extended(chain, 20, 1)
    os.truncate(place / "chain", whole + 5)
    assert len(chain) == 1
    assert chain.link(1) is None
    assert extended(chain, 25, 2) == 1
    link = chain.link(1)
    assert link is not None
    assert link.until_offset == 25
    chain.close()


def test_a_file_is_needed_until_all_but_its_maker_took_it(place: Path) -> None:
    readers = [Chain(place, 3, number, 0) for number in range(3)]
    extended(readers[1], 10, 1)
    assert [each.has_made(0) for each in readers] == [False, True, False]
    for number, left in ((0, True), (2, False)):
        readers[number].take(0)
        assert readers[1].is_needed(0) is left
    # What a reader took is in the file, what it made is not.
    assert [each.has_made(0) for each in readers] == [False, True, False]
    for each in readers:
        each.close()


def test_who_left_needs_nothing(place: Path) -> None:
    readers = [Chain(place, 3, number, 0) for number in range(3)]
    extended(readers[0], 10, 1)
    assert not readers[2].leave()
    assert readers[0].is_needed(0)
    readers[1].take(0)
    assert not readers[0].is_needed(0)
    assert not readers[0].leave()
    assert readers[1].leave()
    for each in readers:
        each.close()


def test_a_reader_that_comes_again_is_waited_for_again(place: Path) -> None:
    one, two = Chain(place, 2, 0, 0), Chain(place, 2, 1, 0)
    extended(two, 10, 1)
    one.leave()
    one.close()
    assert not two.is_needed(0)
    again = Chain(place, 2, 0, 0)
    assert two.is_needed(0)
    assert not two.leave()
    again.close()
    two.close()


def test_leaving_before_anything_is_written(place: Path) -> None:
    readers = [Chain(place, 3, number, 0) for number in range(3)]
    assert [each.leave() for each in readers] == [False, False, True]
    assert len(readers[0]) == 0
    for each in readers:
        each.close()


def test_locks_do_not_reach_into_a_directory_made_anew(place: Path) -> None:
    """The old chain is at its end; what others do under the same name is not its business."""
    old = Chain(place, 2, 0, 0)
    end = old.claim_end(wait_s=60)
    assert end is not None
    shutil.rmtree(place)
    new = Chain(place, 2, 0, 0)
    assert old.result_name(0) != new.result_name(0)
    with pytest.raises(FileNotFoundError):
        old.extend(end, 10, 1)
    assert new.claim_end() == ChainEnd(0, 0, 0)
    assert not (place / "0.lock").exists()
    old.close()
    new.close()


def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path: Path, place: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="shared"):
        Chain(place, 2, 0, 0)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def _open_below(place: Path) -> list[Path]:
    """The files below `place` that this process has open; other tests' threads open others."""
    links = Path("/proc/self/fd").iterdir()
    names = [Path(os.readlink(link)) for link in links if link.is_symlink()]
    return [name for name in names if name.is_relative_to(place)]


def test_no_room_is_an_error_and_leaves_no_descriptor(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain(place, 2, 0, 0)
    end = chain.claim_end(wait_s=60)
    assert end is not None
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: len(data) - 1)
    with pytest.raises(OSError, match="No space left"):
        chain.extend(end, 10, 1)
    chain.close()
    monkeypatch.undo()
    (place / "chain").unlink()
    (place / "chain").mkdir()
    with pytest.raises(IsADirectoryError):
        Chain(place, 2, 0, 0)
    assert _open_below(place) == []


def test_two_processes_never_make_one_chunk_twice(place: Path) -> None:
    """Each adds chunks of ten offsets for as long as the end is not reached."""

    def work(reader: int) -> int:
        chain, made = Chain(place, 4, reader, 0), 0
        while True:
            end = chain.claim_end(wait_s=60)
            assert end is not None
            if end.from_offset >= 500:
                return made
            chain.extend(end, end.from_offset + 10, reader + 1)
            chain.finish(end.index, ChunkState.MEMORY)
            made += 1

    children = []
    for reader in range(4):
        pid = os.fork()
        if pid == 0:
            os._exit(work(reader))
        children.append(pid)
    made = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]

    chain = Chain(place, 4, 0, 0)
    links = [chain.link(index) for index in range(len(chain))]
    assert [(link.from_offset, link.until_offset) for link in links if link] == [
        (at, at + 10) for at in range(0, 500, 10)
    ]
    assert sum(made) == 50
    assert [sum(1 for link in links if link and link.size == n + 1) for n in range(4)] == made
    chain.close()
