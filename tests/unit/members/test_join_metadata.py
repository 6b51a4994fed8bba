"""What a member tells its group of itself, and what is made of what others tell."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.members.model.join_metadata import MemberMetadata, read_metadata

WHOLE = MemberMetadata("orders-0", "h1", "3", 2.0, "env:METADATA_NAME", 77)


def test_what_is_told_is_read_back() -> None:
    assert read_metadata(WHOLE.to_bytes()) == WHOLE
    assert json.loads(WHOLE.to_bytes())["v"] == 1


def test_a_newer_version_may_say_more() -> None:
    document = json.loads(WHOLE.to_bytes()) | {"v": 2, "mood": "b"}
    assert read_metadata(json.dumps(document).encode()) == WHOLE


def test_a_whole_number_of_cores_is_one() -> None:
    assert read_metadata(b'{"v": 1, "slot": "a", "cores": 4}') == MemberMetadata("a", cores=4.0)


@given(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1))
def test_it_is_never_too_long_to_be_read(host: str, executor: str, source: str) -> None:
    slot = "x" * 249
    long = MemberMetadata(slot, host * 900, executor * 900, 1 / 3, source * 900, 4_194_304)
    read = read_metadata(long.to_bytes())
    assert read is not None
    assert (read.slot, read.host) == (slot, (host * 900)[:100])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x01",
        b"[]",
        b"[" * 4_000,
        b'{"slot": "a"}',
        b'{"v": "1", "slot": "a"}',
        b'{"v": 1}',
        b'{"v": 1, "slot": ""}',
        b'{"v": 1, "slot": 7}',
        b'{"v": 1, "slot": "a", "cores": true}',
        b'{"v": 1, "slot": "a", "pid": "7"}',
        b'{"v": 1, "slot": "a"}' + b" " * 4_096,
    ],
)
def test_what_others_tell_is_no_members(data: bytes) -> None:
    assert read_metadata(data) is None
