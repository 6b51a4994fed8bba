"""What of a record goes to the dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from keyrange.individual_commits.dead_letter_sink import _bytes


@pytest.mark.parametrize(
    ("value", "kept"),
    [(b"v", b"v"), (bytearray(b"v"), b"v"), ("é", "é".encode()), (None, None), (5, None)],
)
def test_a_column_is_kept_as_it_came_or_as_text(value: Any, kept: bytes | None) -> None:
    """A query may have cast it; a number is not what was in Kafka."""
    assert _bytes(value) == kept
