"""What logs in is in no text that is shown."""

from __future__ import annotations

import pytest

from keyrange.errors import error, invalid_options
from keyrange.text.masking import without, without_logins


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://AK:SECRET@bucket/t", "s3://***@bucket/t"),
        ("s3://AK:SEC/RE+T@bucket/t", "s3://***@bucket/t"),
        ("s3://AK:SE@CRET@bucket/t", "s3://***@bucket/t"),
        ("(table=https://TOKEN@h:8080/a, n=1)", "(table=https://***@h:8080/a, n=1)"),
        ("https://u:S)E,C@h/a", "https://***@h/a"),
        ("abfss://c@a.dfs.core.windows.net/t?sig=S", "abfss://c@a.dfs.core.windows.net/t?***"),
        ("abfss://c:S@a.dfs.core.windows.net/t", "abfss://***@a.dfs.core.windows.net/t"),
        ("az://c/t?S: not there (table=az://c/t?S)", "az://c/t?*** not there (table=az://c/t?***)"),
        ("GET http://u:S@127.0.0.1:1/b?list=2 'x'", "GET http://***@127.0.0.1:1/b?*** 'x'"),
        # What is no login.
        ("http://127.0.0.1:9000/b/a@b", "http://127.0.0.1:9000/b/a@b"),
        ("http://[::1]:9000/b/a@b", "http://[::1]:9000/b/a@b"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("file:///a?b and ana@example.com", "file:///a?b and ana@example.com"),
        ("hash a?b", "hash a?b"),
    ],
)
def test_addresses_are_shown_without_logins(text: str, shown: str) -> None:
    assert without_logins(text) == shown
    assert without_logins(shown) == shown


def test_errors_have_no_logins() -> None:
    failure = error("COMMITS_UNREADABLE", "GET http://u:S@h/", table="s3://A:S@bucket/t?sig=S")
    assert failure.message == "GET http://***@h/ (table=s3://***@bucket/t?***)"
    assert "u:S" not in str(invalid_options("option 'commitTable' https://u:S@h/t is none"))


def test_texts_are_masked_the_longest_first() -> None:
    assert without("a abc b", ["a", "abc", ""]) == "*** *** b"
