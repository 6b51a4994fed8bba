"""What is told of a failure that a store or a library names in its own words."""

from __future__ import annotations

import pytest

from keyrange.storage.failure_text import text_of


def test_no_part_of_a_secret_is_told() -> None:
    settings = {"azure_storage_connection_string": "k" * 64, "aws_secret_access_key": "hush"}
    for words in range(40, 50):
        text = text_of(OSError("hush, no answer " + "from it " * words + "k" * 64), settings)
        assert text.startswith("***, no answer")
        assert "kk" not in text


def test_no_part_of_a_secret_of_the_environment_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store tells the token that it does not take, and delta-rs the store's answer."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t" * 600)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    failure = OSError(f"no hush of AKIA: <Token-0>{'t' * 600}</Token-0>")
    assert text_of(failure, {}) == "no *** of AKIA: <Token-0>***</Token-0>"


def test_it_is_one_line_without_colours_and_backtrace() -> None:
    failure = OSError("\x1b[31mno answer\x1b[0m\n  from b\n   0: std::backtrace\n   1: main")
    assert text_of(failure, {}) == "no answer from b"
