"""Numbers of a length of their own, seven bits in each byte, the lowest first."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """A number that is not negative."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def zigzag(number: int) -> bytes:
    """A number whose sign is its lowest bit; here one that is not negative."""
    return varint(number << 1)
