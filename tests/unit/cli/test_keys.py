"""Keys as the command line takes them, and bytes as it shows them."""

from __future__ import annotations

import json

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from keyrange.cli.values import in_json, keys_option, read_key, shown
from keyrange.options import parse_options
from samples import strategies  # noqa: F401  registers the hypothesis profiles


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("N14228", b"N14228"),
        ("", b""),
        ("null", None),
        ("text:null", b"null"),
        ("text:hex:00", b"hex:00"),
        ("text:", b""),
        ("hex:00ff", b"\x00\xff"),
        ("hex:", b""),
        ("base64:AP8=", b"\x00\xff"),
        ("a:b", b"a:b"),
        ("hexa", b"hexa"),
        ("grün", "grün".encode()),
        ("\udcff", b"\xff"),
    ],
)
def test_a_key_is_text_or_bytes_or_null(text: str, key: bytes | None) -> None:
    assert read_key(text) == key


@pytest.mark.parametrize("text", ["hex:0", "hex:zz", "base64:AP8", "base64:ü"])
def test_what_is_no_key_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        read_key(text)
    form, _, rest = text.partition(":")
    assert f"is no {form}" in str(refused.value)
    assert rest not in str(refused.value).replace(form, "")


@given(st.lists(st.none() | st.binary(max_size=8), min_size=1, max_size=5))
def test_keys_reach_the_source_as_they_are(keys: list[bytes | None]) -> None:
    options = {"subscribe": "t", "kafka.bootstrap.servers": "h:1", "keys": keys_option(keys)}
    assert parse_options(options).key_ranges.keys == tuple(keys)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "null"),
        (b"", ""),
        (b'{"a": 1}\n', '{"a": 1}\n'),
        ("grün".encode(), "grün"),
        (b"\xff\x00", "hex:ff00"),
        # A terminal would obey these.
        (b"\x1b[31mred", "hex:1b5b33316d726564"),
        ("\u202eabc".encode(), "hex:e280ae616263"),
    ],
)
def test_bytes_are_shown_as_text_or_hex(content: bytes | None, text: str) -> None:
    assert shown(content) == text


@given(st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode))
def test_json_says_which_bytes_they_were(content: bytes | None) -> None:
    document = json.loads(json.dumps(in_json(content)))
    if isinstance(document, dict):
        assert bytes.fromhex(document["hex"]) == content
    else:
        assert (document if document is None else document.encode()) == content
