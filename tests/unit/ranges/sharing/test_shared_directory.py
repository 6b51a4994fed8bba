"""The private directories of an executor: whose they are, their budget, and who sweeps them."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from keyrange.ranges.sharing import shared_directory as module
from keyrange.ranges.sharing.chunk_chain import Chain
from keyrange.ranges.sharing.shared_directory import (
    ExecutorDirectory,
    HostSettings,
    name_of,
    usual_settings,
)


@pytest.fixture
def settings(tmp_path: Path) -> HostSettings:
    for name in ("memory", "spill"):
        (tmp_path / name).mkdir()
    return HostSettings(1_000, 3_000, tmp_path / "memory", tmp_path / "spill")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_can_enter(settings: HostSettings) -> None:
    made = ExecutorDirectory(settings)
    Chain(made.path / "batch", 2, 0, 0).close()
    result = made.result("batch", "0", spill=True)
    assert made.reserve(result, 10)
    directories = [made.path, made.path.parent, made.spill_path, made.spill_path.parent]
    directories += [made.path / "batch", made.spill_path / "batch"]
    assert {mode(path) for path in directories} == {0o700}
    files = [made.path / "batch" / "chain", made.path / "budget", result]
    assert {mode(path) for path in files} == {0o600}


@pytest.mark.parametrize("what", ["link", "open", "file", "foreign"])
def test_what_others_put_there_is_refused(
    settings: HostSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    assert settings.memory_directory is not None
    path = settings.memory_directory / f"keyrange-{os.getuid()}"
    if what == "link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        path.symlink_to(tmp_path / "theirs")
    elif what == "file":
        path.touch(0o600)
    else:
        path.mkdir(mode=0o700)
        if what == "open":
            path.chmod(0o750)
    if what == "foreign":
        mine = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: mine + 1)
        path.rename(path.with_name(f"keyrange-{mine + 1}"))
    with pytest.raises(OSError, match="keyrange-"):
        ExecutorDirectory(settings)
    assert list(settings.spill_directory.iterdir()) == []


def test_names_tell_nothing() -> None:
    name = name_of("plan", "secret-topic", 3)
    assert name == name_of("plan", "secret-topic", 3)
    assert set(name) <= set("0123456789abcdef")
    names = {name_of(*parts) for parts in (("a", "b"), ("ab",), ("a", "b", ""), ("", "a", "b"))}
    assert len(names) == 4


def test_the_usual_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'a'},{tmp_path / 'b'}")
    monkeypatch.setattr(module, "_SHARED_MEMORY", tmp_path)
    assert usual_settings(1, 2) == HostSettings(1, 2, tmp_path, tmp_path / "a")
    monkeypatch.setattr(module, "_SHARED_MEMORY", tmp_path / "none")
    assert usual_settings(1, 2).memory_directory is None


def placed(made: ExecutorDirectory, file_name: str, size: int) -> str:
    """Where a result of so many bytes finds room, as readers look for it."""
    for spill in (False, True):
        path = made.result("batch", file_name, spill)
        if made.reserve(path, size):
            assert path.stat().st_size == size
            return "spill" if spill else "memory"
    return "nowhere"


def test_memory_is_filled_first_then_the_local_directory(settings: HostSettings) -> None:
    made = ExecutorDirectory(settings)
    (made.path / "batch").mkdir()
    sizes = [600, 600, 400, 2_400, 1]
    found = [placed(made, str(number), size) for number, size in enumerate(sizes)]
    assert found == ["memory", "spill", "memory", "spill", "nowhere"]
    made.result("batch", "0", spill=False).unlink()
    assert placed(made, "5", 600) == "memory"


def test_a_result_that_grows_counts_once(settings: HostSettings) -> None:
    made = ExecutorDirectory(settings)
    (made.path / "batch").mkdir()
    path = made.result("batch", "0", spill=False)
    assert made.reserve(path, 600)
    assert made.reserve(path, 1_000)
    assert not made.reserve(path, 1_001)
    assert path.stat().st_size == 1_000


def test_all_batches_of_an_executor_share_the_budget(settings: HostSettings) -> None:
    one, two = ExecutorDirectory(settings), ExecutorDirectory(settings)
    for made, name in ((one, "a"), (two, "b")):
        (made.path / name).mkdir()
    assert one.reserve(one.result("a", "0", spill=False), 700)
    assert not two.reserve(two.result("b", "0", spill=False), 700)


def test_without_shared_memory_there_is_one_place_for_both_budgets(tmp_path: Path) -> None:
    made = ExecutorDirectory(HostSettings(1_000, 3_000, None, tmp_path))
    (made.path / "batch").mkdir()
    assert made.path == made.spill_path
    assert placed(made, "0", 3_900) == "memory"
    assert placed(made, "1", 200) == "nowhere"


def test_nothing_is_left_behind_where_the_batch_is_gone(settings: HostSettings) -> None:
    """A late maker does not make the directories again."""
    made = ExecutorDirectory(settings)
    for spill in (False, True):
        with pytest.raises(FileNotFoundError):
            made.reserve(made.result("gone", "0", spill), 10)
    assert {path.name for path in made.path.iterdir()} == {"budget", "spill"}
    assert list(made.spill_path.iterdir()) == []


_MAKE = """
import sys
from pathlib import Path
from keyrange.ranges.sharing.shared_directory import ExecutorDirectory, HostSettings
made = ExecutorDirectory(HostSettings(1000, 3000, Path(sys.argv[1]), Path(sys.argv[2])))
(made.path / "batch").mkdir()
for spill in (False, True):
    assert made.reserve(made.result("batch", "0", spill), 10)
print(made.path.name)
"""


def by_another_executor(settings: HostSettings, tmp_path: Path) -> str:
    """Directories of an executor that is gone when this returns; their name."""
    places = [str(settings.memory_directory), str(settings.spill_directory)]
    script = tmp_path / "make.py"
    script.write_text(_MAKE)
    # A shell between: the owner is the maker's parent.
    command = f"{sys.executable} {script} {' '.join(places)}; true"
    return subprocess.run(
        command, shell=True, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_what_a_dead_executor_left_is_swept(settings: HostSettings, tmp_path: Path) -> None:
    dead = by_another_executor(settings, tmp_path)
    made = ExecutorDirectory(settings)
    assert dead != made.path.name
    for parent in (made.path.parent, made.spill_path.parent):
        assert [path.name for path in parent.iterdir()] == [made.path.name]


def test_what_a_dead_executor_left_is_swept_before_its_parent_has_waited_for_it(
    settings: HostSettings,
) -> None:
    """In a container nobody may ever wait for it."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        left = module.directory_of_process(settings, child.pid)
        ExecutorDirectory(settings)
        assert left.exists()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        ExecutorDirectory(settings)
        assert not left.exists()
    finally:
        child.kill()
        child.communicate()


def test_a_sweep_follows_no_link_to_elsewhere(settings: HostSettings, tmp_path: Path) -> None:
    dead = by_another_executor(settings, tmp_path)
    made_at = Path(str(settings.memory_directory)) / f"keyrange-{os.getuid()}" / dead
    (made_at / "spill").unlink()
    (tmp_path / "precious").mkdir()
    (made_at / "spill").symlink_to(tmp_path / "precious")
    ExecutorDirectory(settings)
    assert not made_at.exists()
    assert (tmp_path / "precious").is_dir()


def test_what_lives_or_may_live_is_left_alone(settings: HostSettings) -> None:
    """This executor, and those of other containers, whose processes cannot be seen from here."""
    made = ExecutorDirectory(settings)
    (made.path / "batch").mkdir()
    foreign = made.path.with_name("1-1-1")
    foreign.mkdir()
    ExecutorDirectory(settings)
    assert (made.path / "batch").is_dir()
    assert foreign.is_dir()
    age(foreign, 2 * 86_400)
    ExecutorDirectory(settings)
    assert not foreign.exists()


def age(path: Path, by_s: float) -> None:
    """As if nobody had touched a directory and what is in it for so long."""
    for each in (*path.iterdir(), path):
        touched = each.stat().st_mtime - by_s
        os.utime(each, (touched, touched))


def test_idle_batches_are_swept_unless_a_reader_is_there(settings: HostSettings) -> None:
    made = ExecutorDirectory(settings)
    held = Chain(made.path / "held", 2, 0, 0)
    for name in ("old", "young", "kept"):
        Chain(made.path / name, 2, 0, 0).close()
        assert made.reserve(made.result(name, "0", spill=True), 10)
    made.result("spilled", "0", spill=True).parent.mkdir()
    for name in ("held", "old", "kept"):
        age(made.path / name, 3_600)
    for name in ("old", "kept", "spilled"):
        age(made.spill_path / name, 3_600)
    made.sweep_idle(keep="kept")

    names = {path.name for path in made.path.iterdir()} - {"budget", "spill"}
    assert names == {"held", "young", "kept"}
    assert {path.name for path in made.spill_path.iterdir()} == {"young", "kept"}
    held.close()
    made.sweep_idle(keep="kept")
    assert not (made.path / "held").exists()


def test_a_batch_that_was_just_made_is_not_idle(settings: HostSettings) -> None:
    """Its directory is there a moment before its first file."""
    made = ExecutorDirectory(settings)
    (made.path / "batch").mkdir()
    made.sweep_idle(keep="")
    assert (made.path / "batch").is_dir()


def test_a_batch_takes_its_spill_along(settings: HostSettings) -> None:
    made = ExecutorDirectory(settings)
    (made.path / "batch").mkdir()
    assert made.reserve(made.result("batch", "0", spill=True), 10)
    made.remove("batch")
    assert {path.name for path in made.path.iterdir()} == {"budget", "spill"}
    assert list(made.spill_path.iterdir()) == []


def result(made: ExecutorDirectory, file_name: str, size: int, spill: bool = False) -> Path:
    path = made.result("batch", file_name, spill)
    assert made.reserve(path, size)
    return path


def free(made: ExecutorDirectory) -> list[str]:
    return sorted(path.name for path in (made.path / "batch").glob("free-*"))


@pytest.fixture
def made(settings: HostSettings) -> ExecutorDirectory:
    made = ExecutorDirectory(settings)
    (made.path / "batch").mkdir()
    return made


def test_a_dropped_file_serves_again_as_it_is(made: ExecutorDirectory) -> None:
    old = result(made, "0", 100)
    old.write_bytes(b"x" * 100)
    inode = old.stat().st_ino
    made.drop(old)
    assert not old.exists()
    assert free(made) == ["free-0"]
    new = result(made, "1", 60)
    assert new.stat().st_ino == inode
    assert new.read_bytes() == b"x" * 100
    assert free(made) == []
    assert made.reserve(new, 150)
    assert new.read_bytes() == b"x" * 100 + bytes(50)


def test_a_file_that_somebody_has_mapped_is_not_taken(made: ExecutorDirectory) -> None:
    path = result(made, "0", 100)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        made.drop(path)
        assert result(made, "1", 100).stat().st_ino != os.fstat(file.fileno()).st_ino
        assert free(made) == ["free-0"]
        inode = os.fstat(file.fileno()).st_ino
    assert result(made, "2", 100).stat().st_ino == inode


def test_free_files_are_few_and_the_oldest_go(made: ExecutorDirectory) -> None:
    paths = [result(made, str(number), 10) for number in range(7)]
    for number, path in enumerate(paths):
        os.utime(path, (number, number))
    for path in paths:
        made.drop(path)
    assert free(made) == ["free-3", "free-4", "free-5", "free-6"]


def test_free_files_count_until_room_is_needed(made: ExecutorDirectory) -> None:
    """Those of all batches; the one that is taken counts once."""
    (made.path / "other").mkdir()
    kept = made.result("other", "0", spill=False)
    assert made.reserve(kept, 300)
    made.drop(kept)
    paths = [result(made, str(number), 200) for number in range(3)]
    for number, path in enumerate(paths):
        os.utime(path, (number, number))
    made.drop(paths[0])
    made.drop(paths[1])
    assert result(made, "3", 300).stat().st_size == 300
    assert used(made) == 1_000
    # One of the other batch, one of this, and no more.
    assert made.reserve(made.result("other", "1", spill=False), 500)
    assert used(made) == 1_000
    assert free(made) == []
    assert not made.reserve(made.result("other", "2", spill=False), 1)


def test_no_more_is_given_up_than_is_needed(made: ExecutorDirectory) -> None:
    paths = [result(made, str(number), 300) for number in range(3)]
    for number, path in enumerate(paths):
        os.utime(path, (number, number))
        made.drop(path)
    (made.path / "other").mkdir()
    assert made.reserve(made.result("other", "0", spill=False), 200)
    assert free(made) == ["free-1", "free-2"]


def used(made: ExecutorDirectory) -> int:
    return sum(path.stat().st_size for path in made.path.glob("*/*") if path.is_file())


def test_a_free_file_does_not_stay_where_there_is_no_room(made: ExecutorDirectory) -> None:
    """Under the name of a result it would count, and hold other rows."""
    paths = [result(made, str(number), size) for number, size in enumerate((400, 500))]
    made.drop(paths[0])
    path = made.result("batch", "2", spill=False)
    assert not made.reserve(path, 600)
    assert not path.exists()
    assert used(made) == 500
    assert made.reserve(path, 500)


def test_what_is_dropped_from_a_disk_is_removed(made: ExecutorDirectory, tmp_path: Path) -> None:
    made.drop(result(made, "0", 10, spill=True))
    assert list((made.spill_path / "batch").iterdir()) == []
    without = ExecutorDirectory(HostSettings(1_000, 3_000, None, tmp_path))
    (without.path / "batch").mkdir()
    without.drop(result(without, "0", 10))
    assert list((without.path / "batch").iterdir()) == []


def test_to_drop_what_is_gone_is_no_fault(made: ExecutorDirectory) -> None:
    path = result(made, "0", 10)
    path.unlink()
    made.drop(path)
    made.remove("batch")
    made.drop(path)
    shutil.rmtree(made.path)
    made.drop(path)
    assert not made.path.exists()
