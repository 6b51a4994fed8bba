"""Where machine code is kept, and what happens where it cannot be."""

from __future__ import annotations

import os
import pkgutil
import tempfile
from pathlib import Path
from typing import Any

import numba
import pytest
from numba import types

from keyrange.wire import compiling


def doubled(number: int) -> int:
    return number * 2


def tripled(number: int) -> int:
    return number * 3


def test_other_helpers_are_other_machine_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """numba looks at a kernel's own file alone."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def kept() -> int:
        compiling._digest_of_helpers.cache_clear()
        assert compiling.compiled(types.int64(types.int64))(tripled)(2) == 6
        return len([*tmp_path.rglob("*tripled*.nbi")])

    assert kept() == 1
    monkeypatch.setattr(pkgutil, "get_data", lambda *_: b"another source")
    assert kept() == 2
    compiling._digest_of_helpers.cache_clear()


def test_without_any_writable_directory_each_process_compiles(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_directory() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    compile_with = numba.njit

    def njit(signature: Any, cache: bool = False, **more: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function 'doubled': no locator available")
        return compile_with(signature, **more)

    monkeypatch.setattr(tempfile, "gettempdir", no_directory)
    monkeypatch.setattr(numba, "njit", njit)
    compiling._warn_of_no_directory.cache_clear()
    for _ in range(2):
        function = compiling.compiled(types.int64(types.int64))(doubled)
        assert function(21) == 42
    [said] = caplog.messages
    assert said.endswith("which takes it seconds: No usable temporary directory found")


@pytest.mark.parametrize("taken", ["open", "file", "link", "nowhere"])
def test_processes_share_a_directory_where_its_name_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, taken: str
) -> None:
    own = f"keyrange-kernels-{os.getuid()}"
    match taken:
        case "open":
            (tmp_path / own).mkdir()
            (tmp_path / own).chmod(0o777)
        case "file":
            (tmp_path / own).touch()
        case _:
            (tmp_path / "elsewhere").mkdir(0o700)
            (tmp_path / own).symlink_to(tmp_path / ("elsewhere" if taken == "link" else "nowhere"))
    (tmp_path / f"{own}-0").symlink_to(tmp_path / "elsewhere")
    before = {*tmp_path.iterdir()}
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # As often as kernels ask for it, in this process and in others.
    found = {compiling._private_cache_dir() for _ in range(8)}
    assert {*tmp_path.iterdir()} - before == found
    [path] = found
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_nobody_took_has_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for _ in range(2):
        assert compiling._private_cache_dir() == tmp_path / f"keyrange-kernels-{os.getuid()}"
