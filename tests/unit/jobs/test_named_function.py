"""A function that a command line names as MODULE:NAME."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyrange.jobs.named_function import named_function


def test_the_function_is_found() -> None:
    assert named_function("os.path:join")("a", "b") == "a/b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os\nos.joined\n", "AttributeError: module 'os' has no attribute 'joined'"),
        ("def f(:\n", "SyntaxError: "),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("import is_not_installed_here\n", "No module named 'is_not_installed_here'"),
    ],
)
def test_a_module_that_fails_on_import_is_named_with_its_failure(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fails_on_import.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"^fails_on_import:f: ") as failure:
        named_function("fails_on_import:f")
    assert said in str(failure.value)


def test_a_near_name_is_offered() -> None:
    with pytest.raises(ValueError, match=r"^os\.path:jion: .*did you mean.*join"):
        named_function("os.path:jion")


@pytest.mark.parametrize("name", ["os:sep", ":f", "os:"])
def test_what_is_no_function_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        named_function(name)
