"""Secrets and references: looked up late, anew each time, and named without their value."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251  as Spark does with a source
from pathlib import Path

import pytest

from keyrange.errors import InvalidError
from keyrange.options.secrets import Secret, parse_secret


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("p", "p"),
        ("", ""),
        ("environment", "environment"),
        ("ENV:X", "ENV:X"),
        (" env:X", " env:X"),
        ("literal:env:X", "env:X"),
        ("literal:file:/x", "file:/x"),
        ("literal:literal:x", "literal:x"),
        ("literal:", ""),
        ("literal", "literal"),
        ("a:b", "a:b"),
    ],
)
def test_literals(given: str, meant: str) -> None:
    secret = parse_secret(given)
    assert secret.reveal() == meant
    assert not secret.is_reference


def test_a_variable_is_looked_up_at_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = parse_secret("env:KEYRANGE_TEST")
    for value in ("one", "two"):
        monkeypatch.setenv("KEYRANGE_TEST", value)
        assert secret.reveal() == value
    monkeypatch.delenv("KEYRANGE_TEST")
    with pytest.raises(InvalidError, match=r"\[SECRET_NOT_FOUND\] env:KEYRANGE_TEST is not set"):
        secret.reveal()


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
@pytest.mark.parametrize("form", ["file:{}", "file://{}"])
def test_a_file_is_read_at_each_use(tmp_path: Path, ending: str, form: str) -> None:
    file = tmp_path / "secret"
    secret = parse_secret(form.format(file))
    for value in ("one", " two \n", "é"):
        file.write_bytes((value + ending).encode())
        dropped = value if ending else value.removesuffix("\n")
        assert secret.reveal() == dropped


@pytest.mark.parametrize(
    ("content", "why"), [(b"", "is empty"), (b"\xff", "UTF-8"), (b"x" * (1 << 21), "more than")]
)
def test_a_file_that_holds_no_secret(tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(InvalidError, match=why) as caught:
        Secret(f"file:{file}").reveal()
    assert f"file:{file} " in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InvalidError, match=r"\[SECRET_NOT_FOUND\] file:/not/there cannot be read"):
        Secret("file:/not/there").reveal()


@pytest.mark.parametrize("value", ["env:", "env:a b", "env:1", "env:hunter2-x", "file:", "file:/"])
def test_a_reference_to_nothing_is_refused_without_the_value(value: str) -> None:
    with pytest.raises(ValueError, match=r"^must ") as caught:
        parse_secret(value)
    assert "hunter2" not in str(caught.value)


def test_references_travel_as_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYRANGE_TEST", "hunter2")
    secret = parse_secret("env:KEYRANGE_TEST")
    assert secret.reveal() == "hunter2"
    data = pickle.dumps(secret)
    assert b"hunter2" not in data
    for travelled in (pickle.loads(data), copy.deepcopy(secret)):
        assert travelled == secret
        assert travelled.reveal() == "hunter2"
        assert "hunter2" not in repr(travelled)
        assert "KEYRANGE" not in f"{travelled} {travelled!r}"
