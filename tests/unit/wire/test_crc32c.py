"""CRC32C: the instruction, the tables and the definition agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.wire import record_kernels
from samples import strategies
from samples.strategies import array

# RFC 3720, appendix B.4, and the usual check value.
VECTORS = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (b"\0" * 32, 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
]
KERNELS = [record_kernels.crc32c, record_kernels.crc32c_in_software]


def bitwise(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_published_vectors(data: bytes, expected: int) -> None:
    assert bitwise(data) == strategies.crc32c(data) == expected
    for kernel in KERNELS:
        assert kernel(array(data), 0, len(data)) == expected


@given(data=st.binary(max_size=100), at=st.integers(0, 20), left=st.integers(0, 20))
def test_hardware_software_and_definition_agree_on_any_part(
    data: bytes, at: int, left: int
) -> None:
    end = max(len(data) - left, at)
    at = min(at, end)
    if end > len(data):
        return
    expected = bitwise(data[at:end])
    assert strategies.crc32c(data[at:end]) == expected
    for kernel in KERNELS:
        assert kernel(array(data), at, end) == expected


def test_this_host_tests_two_implementations() -> None:
    if not record_kernels._host_has_crc32c():
        pytest.skip("this processor has no instruction for CRC32C")
    assert record_kernels.crc32c is not record_kernels.crc32c_in_software
