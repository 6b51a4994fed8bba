"""Where kernels are compiled, and where their machine code is kept for other processes."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import logging
import os
import pkgutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
from numba.core.options import DefaultOptions

_log = logging.getLogger(__name__)


def _private_cache_dir() -> Path:
    """A directory for machine code that only this user can write: no code of others is loaded.

    Where somebody else has its name, one of another name, which later processes find again.
    """
    temporary, name = Path(tempfile.gettempdir()), f"keyrange-kernels-{os.getuid()}"
    path = temporary / name
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if _is_private(path):
        return path
    others = sorted(temporary.glob(f"{name}-*"))
    found = next(filter(_is_private, others), None)
    return found or Path(tempfile.mkdtemp(prefix=f"{name}-"))


def _is_private(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return is_own and not status.st_mode & 0o077


@contextmanager
def _host_lock() -> Iterator[None]:
    """Held while one process of this user compiles; the kernel frees it when the process dies."""
    name = hashlib.sha256(__file__.encode()).hexdigest()[:16]
    try:
        descriptor = os.open(
            _private_cache_dir() / f"{name}.lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600
        )
    except OSError:
        # No temporary directory can be written to: each process compiles for itself.
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@functools.cache
def _digest_of_helpers() -> str:
    source = pkgutil.get_data("keyrange.wire", "kernel_helpers.py")
    return hashlib.sha256(source or b"").hexdigest()[:8]


@functools.cache
def _warn_of_no_directory(why: str) -> None:
    _log.warning("each process compiles its machine code, which takes it seconds: %s", why)


# For kernels that make no arrays. Otherwise numba counts, by atomic instructions, who has an array
# each time that a helper is called with it, which may take most of a kernel's time.
_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}

# A helper of such a kernel, put into its place: the arrays of a call are a hundred words otherwise.
inlined = numba.njit(forceinline=True, **_UNCOUNTED)


def compiled(
    signature: Any, *, allocates: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile now, or load what an earlier process compiled.

    With `allocates` false the function and its helpers, all `inlined`, make no arrays.
    """
    options = {"nogil": True, **({} if allocates else _UNCOUNTED)}

    def compile_function(function: Callable[..., Any]) -> Callable[..., Any]:
        # The name of the file that numba keeps: by its own file alone it knows a kernel again.
        function.__qualname__ += f"_{_digest_of_helpers()}"
        with _host_lock():
            try:
                return numba.njit(signature, cache=True, **options)(function)
            except RuntimeError as no_locator:
                # Neither the package's directory nor the home directory can be written to, as in
                # many containers.
                if "cannot cache function" not in str(no_locator):
                    raise
                try:
                    directory = str(_private_cache_dir())
                except OSError as no_directory:
                    _warn_of_no_directory(str(no_directory))
                    return numba.njit(signature, **options)(function)
                saved, numba.config.CACHE_DIR = numba.config.CACHE_DIR, directory
                try:
                    return numba.njit(signature, cache=True, **options)(function)
                finally:
                    numba.config.CACHE_DIR = saved

    return compile_function


def compiled_when_called(
    signature: Any, *, allocates: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For what few tasks need: it is compiled or loaded at its first call, not at import."""

    def defer(function: Callable[..., Any]) -> Callable[..., Any]:
        compile_once = functools.cache(lambda: compiled(signature, allocates=allocates)(function))

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return compile_once()(*arguments)

        return call

    return defer
