"""Logs gone wrong, from a seed: bytes flipped, lengths that lie, fields at their limits.

`whole` mutations leave the checksum wrong where it covers them; `resealed` ones compute it anew, as
only a hostile or broken producer could, so that what lies behind the checksum is reached.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from samples.strategies import (
    COMPRESS,
    HEADER,
    Batch,
    Record,
    batch_of,
    encode_batch,
    encode_record,
    raw_batch,
    sealed,
    varint,
)

EXTREMES = (
    0,
    1,
    -1,
    -2,
    63,
    64,
    127,
    128,
    2**15,
    2**31 - 1,
    -(2**31),
    2**31,
    2**32,
    2**62,
    2**63 - 1,
    -(2**63),
)
VARINTS = (*map(varint, EXTREMES), b"\xff" * 10, b"\xff" * 9 + b"\x01", b"\x80" * 12, b"\x80", b"")


def log(random: Random) -> list[Batch]:
    """A small log that is right."""
    batches, offset = [], random.choice((0, 5, 2**40))
    for _ in range(random.randint(1, 4)):
        batch = batch_of(
            offset,
            [record(random) for _ in range(random.randint(0, 6))],
            flags=random.choice((0, 0, 0x08, 0x10)),
            producer_id=random.choice((-1, 7)),
        )
        codec = random.choice(sorted(COMPRESS)) if batch.records else "none"
        batches.append(
            Batch(offset, batch.records, codec, batch.flags, producer_id=batch.producer_id)
        )
        offset = batch.last_offset + 1 + random.choice((0, 0, 3))
    return batches


def record(random: Random) -> Record:
    def field() -> bytes | None:
        return random.choice((None, b"", b"k", random.randbytes(random.randint(0, 40))))

    names = ("", "a", "name")
    headers = tuple((random.choice(names), field()) for _ in range(random.choice((0, 0, 1, 3))))
    return Record(random.choice((0, 0, 2)), random.choice((0, 5, -9)), field(), field(), headers)


def hostile_record(random: Random, of: Record) -> bytes:
    """A record of which one length, count or delta may lie."""
    parts: list[bytes] = [varint(of.timestamp_delta), varint(of.delta)]
    for data in (of.key, of.value):
        parts += [varint(-1), b""] if data is None else [varint(len(data)), data]
    parts.append(varint(len(of.headers)))
    for name, tag in of.headers:
        parts += [varint(len(name.encode())), name.encode()]
        parts += [varint(-1), b""] if tag is None else [varint(len(tag)), tag]
    if random.random() < 0.7:
        near = varint(random.choice((len(b"".join(parts)), 3, 40, 100)) + random.randint(-3, 3))
        parts[random.randrange(len(parts))] = random.choice((*VARINTS, near, near, b"\xc3"))
    body = b"\0" + b"".join(parts)
    if random.random() < 0.2:
        return random.choice(VARINTS) + body
    return varint(len(body) + random.choice((0, 0, 0, 0, 1, -1, 7))) + body


def flipped(random: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        if out:
            out[random.randrange(len(out))] ^= 1 << random.randrange(8)
    return bytes(out)


def spliced(random: Random, data: bytes) -> bytes:
    """Bytes put in, taken out, written over or cut off."""
    at = random.randint(0, len(data))
    piece = random.choice((*VARINTS, random.randbytes(random.randint(0, 20))))
    gone = random.choice((0, len(piece), random.randint(0, 20)))
    return random.choice((data[:at] + piece + data[at + gone :], data[:at]))


def resealed_batch(random: Random, batch: Batch) -> bytes:
    """A batch that is wrong inside and whose checksum is right."""
    codec, compress = COMPRESS[batch.codec]
    payload = b"".join(map(encode_record, batch.records))
    kind = random.randrange(4)
    if kind == 0:
        payload = random.choice((flipped, spliced))(random, payload)
    elif kind == 1:
        payload = b"".join(hostile_record(random, each) for each in batch.records)
    packed = compress(payload) if codec else payload
    if kind == 2:
        packed = random.choice((flipped, spliced))(random, packed)
    count = len(batch.records) + random.choice((0, 0, 0, 1, -1))
    if random.random() < 0.1:
        count = random.choice((0, -1, 2**31 - 1, -(2**31), 1000))
    if random.random() < 0.05:
        codec = random.randrange(8)
    data = raw_batch(batch, codec, packed, count)
    return hostile_header(random, data) if kind == 3 else data


# Position and format of the fields behind the checksum, and of the base offset before it.
_FIELDS = ((21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"), (43, ">q"), (57, ">i"), (0, ">q"))


def hostile_header(random: Random, data: bytes) -> bytes:
    at, form = random.choice(_FIELDS)
    bits = 8 * struct.calcsize(form)
    value = random.choice((*EXTREMES, random.getrandbits(bits))) & (2**bits - 1)
    out = bytearray(data)
    struct.pack_into(form.upper(), out, at, value)
    return sealed(bytes(out))


def whole(random: Random) -> bytes:
    """A log with bytes flipped or moved anywhere, as on a damaged disk."""
    data = b"".join(map(encode_batch, log(random)))
    return random.choice((flipped, spliced))(random, data)


def resealed(random: Random) -> bytes:
    """A log of which one batch is hostile, perhaps cut off at the end."""
    batches = log(random)
    parts = [encode_batch(batch) for batch in batches]
    at = random.randrange(len(parts))
    parts[at] = resealed_batch(random, batches[at])
    data = b"".join(parts)
    return data[: random.randint(0, len(data))] if random.random() < 0.1 else data


KINDS: tuple[Callable[[Random], bytes], ...] = (whole, resealed, resealed, resealed)
assert HEADER.size == 61
