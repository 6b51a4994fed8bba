"""Where machine code is kept, and what happens where it cannot be."""

from __future__ import annotations

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
