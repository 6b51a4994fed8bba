"""`--option NAME=VALUE`: values from the command line and from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyrange.cli.arguments import named_values
from keyrange.errors import InvalidError


def test_values_are_taken_as_they_are_or_from_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("pass=wörd @x\n", encoding="utf-8")
    assert named_values(["a=1", "b=x=y", "c=", f"d=@{tmp_path / 'secret'}", "a=2"]) == {
        "a": "2",
        "b": "x=y",
        "c": "",
        "d": "pass=wörd @x",
    }


def test_all_that_cannot_be_taken_is_named_and_no_value_is_shown(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xffhidden")
    given = ["alone", "=hidden", f"f=@{tmp_path / 'none'}", f"g=@{tmp_path / 'bytes'}", "h=hidden"]
    with pytest.raises(InvalidError) as caught:
        named_values(given)
    text = caught.value.message
    assert caught.value.condition.name == "INVALID_OPTIONS"
    assert "--option takes NAME=VALUE, not 'alone'" in text
    assert "--option takes NAME=VALUE, not '='" in text
    assert "--option f: the file cannot be read: " in text
    assert "--option g: the file cannot be read: it is not UTF-8 text" in text
    assert "hidden" not in text
