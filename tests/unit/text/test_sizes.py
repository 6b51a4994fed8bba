"""Numbers of bytes in the unit that people would take."""

from __future__ import annotations

import pytest

from keyrange.text.sizes import size_text


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_024, "1.00 KiB"),
        (10 * 2**30, "10.0 GiB"),
        (2**62, "4.00 EiB"),
    ],
)
def test_sizes(count: int, expected: str) -> None:
    assert size_text(count) == expected
