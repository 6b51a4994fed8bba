"""Where readers on one host leave what they share: private directories, within a budget.

An executor's workers have one parent process, and its directory is named after it: pid, start time
and the namespace that the pid belongs to. What a parent that is gone has left is swept by the next
one. Names hold no topic and no key: they are hashes.

Files are written with write(), never through a mapping: a shared-memory filesystem that is full
then answers with an error instead of a signal.

Most of what a file in shared memory costs is that its pages are new. So a result that nobody needs
any more becomes a free file, and its pages serve for another result of the batch, as soon as nobody
has it mapped: who has holds a shared lock on it. One on a disk is removed: what is gone before the
system gets to write it there is never written.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from keyrange.ranges.sharing.locks import lock_soon, lock_within, opened

_log = logging.getLogger(__name__)

_IDLE_S: Final = 60.0
_FOREIGN_IDLE_S: Final = 86_400.0
_SHARED_MEMORY: Final = Path("/dev/shm")
_SPILL_LINK: Final = "spill"
_FREE_PREFIX: Final = "free-"
# Free files of a batch. Those that are still mapped count, and the oldest make room for others.
_FREE_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What readers on a host may keep for one another, per executor.

    `memory_bytes` on shared memory, `spill_bytes` beyond it in `spill_directory`.
    `memory_directory` None stands for no shared memory.
    """

    memory_bytes: int
    spill_bytes: int
    memory_directory: Path | None
    spill_directory: Path


def usual_settings(memory_bytes: int, spill_bytes: int) -> HostSettings:
    """On this host: shared memory where there is such a filesystem, and Spark's local directories.

    Spark names those in the environment of its workers, and removes them with the executor.
    """
    memory = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else None
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    return HostSettings(memory_bytes, spill_bytes, memory, Path(local))


def name_of(*parts: object) -> str:
    """A name for a directory that tells nothing of what it is made of."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:20]


class ExecutorDirectory:
    """The directories of one executor: one for state and small results, one for what spills."""

    def __init__(self, settings: HostSettings) -> None:
        self.settings = settings
        owner = _owner()
        self.path = _private(settings.memory_directory or settings.spill_directory) / owner
        make_private(self.path)
        self.spill_path = self.path
        if settings.memory_directory is not None:
            self.spill_path = _private(settings.spill_directory) / owner
            make_private(self.spill_path)
            with suppress(FileExistsError):
                # For who sweeps after this executor.
                (self.path / _SPILL_LINK).symlink_to(self.spill_path)
        _sweep_dead(self.path.parent, owner)

    def sweep_idle(self, keep: str) -> None:
        """Remove what nobody holds and nobody has touched for a while: what other readers of a
        batch, who ran elsewhere, never came to take."""
        for path in chain.from_iterable(map(_directories, {self.path, self.spill_path})):
            if path.name != keep and _idle_s(path) > _IDLE_S and not _held(path):
                self.remove(path.name)

    def remove(self, name: str) -> None:
        shutil.rmtree(self.path / name, ignore_errors=True)
        shutil.rmtree(self.spill_path / name, ignore_errors=True)

    def result(self, name: str, file_name: str, spill: bool) -> Path:
        """Where a result stands."""
        return (self.spill_path if spill else self.path) / name / file_name

    def reserve(self, path: Path, size: int) -> bool:
        """Make the file of a result, or enlarge it: `size` bytes that take no room yet, so that
        others count them. Returns False where the budget has no room for them.

        A file that is made may be a free one: longer than `size`, and full of other rows. Raises
        OSError where it cannot be made, or the batch's directory was removed.
        """
        settings, owner = self.settings, path.parent.parent
        if self.path == self.spill_path:
            budget = settings.memory_bytes + settings.spill_bytes
        elif owner == self.path:
            budget = settings.memory_bytes
        else:
            budget = settings.spill_bytes
            if (self.path / path.parent.name).is_dir():
                path.parent.mkdir(mode=0o700, exist_ok=True)
        with locked(self.path / "budget", soon=True):
            was_free = self._reuses(path) and not path.exists() and _take_free(path)
            present = _size(path)
            excess = _used(owner) + max(size - present, 0) - budget
            if excess > 0 and _remove_free(owner, excess) < excess:
                if was_free:
                    path.unlink()
                return False
            if size > present:
                _set_size(path, size)
        return True

    def drop(self, path: Path) -> None:
        """Give up a result that nobody needs any more, though some may have it mapped still."""
        with suppress(FileNotFoundError), locked(self.path / "budget", soon=True):
            if self._reuses(path):
                for each in _free_files(path.parent)[: 1 - _FREE_MAX]:
                    each.unlink()
                path.rename(path.with_name(_FREE_PREFIX + path.name))
            else:
                path.unlink()

    def _reuses(self, path: Path) -> bool:
        """Whether a result stands in shared memory."""
        return self.settings.memory_directory is not None and path.parent.parent == self.path


def directory_of_process(settings: HostSettings, pid: int) -> Path:
    """A private directory for what ends with a process; it is swept when the process is gone."""
    path = _private(settings.memory_directory or settings.spill_directory) / _name_of_process(pid)
    make_private(path)
    return path


def _owner() -> str:
    """The parent of this worker: in Spark the daemon that forks an executor's workers."""
    return _name_of_process(os.getppid())


def _name_of_process(pid: int) -> str:
    return f"{pid}-{start_time(pid)}-{_namespace()}"


def start_time(pid: int) -> str:
    """When a process started, in ticks since boot; "" where it is gone, or this is no Linux."""
    return _stat(pid)[1]


def is_alive(pid: int, started: str) -> bool:
    """Whether the process of a pid that started then still runs; one that nobody has waited for
    does not."""
    state, found = _stat(pid)
    if not found:
        return not started and _answers(pid)
    return found == started and state not in ("Z", "X")


def _stat(pid: int) -> tuple[str, str]:
    """State and start time: fields 3 and 22 of proc_pid_stat(5).

    The name before them may hold spaces and brackets.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _namespace() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


def _private(parent: Path) -> Path:
    """This user's directory below one that others may write to."""
    path = private_name(parent)
    make_private(path)
    return path


def private_name(parent: Path) -> Path:
    """What this user's directory below one that others may write to is called."""
    return parent / f"keyrange-{os.getuid()}"


def make_private(path: Path) -> None:
    """Make a directory that only this user can enter.

    Raises OSError where something else has its name: what others put there is not used.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    if not private or status.st_uid != os.getuid():
        raise PermissionError(f"{path} is not a private directory of this user")


def take_private(path: Path) -> None:
    """As `make_private`, on a volume that is handed on: where Kubernetes mounts one with an
    fsGroup, it lets the group into all that is on it. This user's own are taken back. Directories
    above that are missing are made.

    Raises OSError, also where others than the group were let in.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        status = path.lstat()
        is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        if is_own and status.st_mode & 0o077 and not status.st_mode & 0o007:
            path.chmod(0o700)
    make_private(path)


def _sweep_dead(parent: Path, own: str) -> None:
    for path in _directories(parent):
        if path.name != own and _dead(path):
            _log.info("removing what a process that is gone has left: %s", path)
            spill = path / _SPILL_LINK
            if spill.is_symlink() and spill.resolve().name == path.name:
                shutil.rmtree(spill.resolve(), ignore_errors=True)
            shutil.rmtree(path, ignore_errors=True)


def _dead(path: Path) -> bool:
    pid, _, rest = path.name.partition("-")
    started, _, namespace = rest.partition("-")
    if not pid.isdigit() or namespace != _namespace() or not started:
        # Of another container, or of a system where nobody can tell.
        return _idle_s(path) > _FOREIGN_IDLE_S
    return not is_alive(int(pid), started)


def _idle_s(path: Path) -> float:
    """How long nothing was added to a directory, and nothing in it was written to."""
    try:
        touched = [each.lstat().st_mtime for each in (path, *path.iterdir())]
    except OSError:
        return 0.0
    return time.time() - max(touched)


def _held(path: Path) -> bool:
    """Whether a reader has a lock on a directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not lock_within(descriptor, fcntl.LOCK_EX, 0)
    finally:
        os.close(descriptor)


def _used(path: Path) -> int:
    """The bytes of all results below a directory, as far as they are there while it is asked."""
    total = 0
    for directory in _directories(path):
        try:
            with os.scandir(directory) as entries:
                total += sum(each.stat().st_size for each in entries)
        except OSError:
            continue
    return total


def _free_files(directory: Path) -> Sequence[Path]:
    """The free files of a batch, the one first that was written to first."""
    found = []
    for path in directory.glob(f"{_FREE_PREFIX}*"):
        with suppress(FileNotFoundError):
            found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found)]


def _take_free(path: Path) -> bool:
    """Make a result of a free file that nobody has mapped, if there is one.

    Nobody comes to map it meanwhile: who has locked a file looks whether it still has the name that
    he opened, and no free file ever had this one.
    """
    for free in _free_files(path.parent):
        with opened(free, os.O_RDWR) as descriptor:
            if lock_within(descriptor, fcntl.LOCK_EX, 0):
                free.rename(path)
                return True
    return False


def _remove_free(path: Path, size: int) -> int:
    """Remove free files below a directory until they had so many bytes; returns how many."""
    removed = 0
    for directory in _directories(path):
        for free in _free_files(directory):
            if removed >= size:
                return removed
            with suppress(FileNotFoundError):
                count = free.stat().st_size
                free.unlink()
                removed += count
    return removed


def _directories(path: Path) -> Sequence[Path]:
    with os.scandir(path) as entries:
        return [Path(each) for each in entries if each.is_dir(follow_symlinks=False)]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _set_size(path: Path, size: int) -> None:
    with opened(path, os.O_CREAT | os.O_RDWR) as descriptor:
        os.ftruncate(descriptor, size)


@contextmanager
def locked(path: Path, soon: bool = False) -> Iterator[None]:
    """While nobody else on this host has the lock of a file, which is made where there is none.

    `soon`: nobody holds it for long. Raises TimeoutError, an OSError, where somebody does.
    """
    with opened(path, os.O_CREAT | os.O_RDWR) as descriptor:
        if soon:
            lock_soon(descriptor, fcntl.LOCK_EX, path.name)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def put_in_place(path: Path, text: str) -> None:
    """Write a file that others read: they see it whole, or what was there before."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(draft, flags, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)
