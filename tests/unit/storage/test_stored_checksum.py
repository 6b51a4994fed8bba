"""CRC32C of what is stored, by the one pass or the other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from keyrange.storage.stored_checksum import crc32c
from samples import strategies


@pytest.mark.parametrize("size", [0, 1, 9, 255, 256, 257, 5_000])
def test_both_passes_say_the_same(size: int) -> None:
    data = bytes((at * 31 + 7) % 256 for at in range(size))
    assert crc32c(data) == strategies.crc32c(data)


def test_a_small_text_loads_no_kernel() -> None:
    """A query that is planned would start 0.4 s later."""
    code = (
        "import sys; from keyrange.storage.stored_checksum import crc32c; crc32c(bytes(255))\n"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
