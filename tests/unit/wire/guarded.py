"""Decode logs gone wrong with every array between pages that cannot be touched.

Numba checks no bounds. Here each array that the decoder reads or fills ends where a page without
access begins, or begins where one ends: a kernel that goes one byte too far kills the process.

Run as a program: SEED CASES, or `write SEED CASES` for rows that become record batches, or
`overread` and `overwrite`, which show that the guard bites.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.errors import KeyrangeError
from keyrange.model.columns import COLUMNS, USUAL
from keyrange.model.key_ranges import HASH_MAX
from keyrange.model.reader_ranges import Placement
from keyrange.wire import (
    chunk_decoder,
    columns,
    compression,
    key_range_selection,
    produced_batches,
    produced_columns,
    record_batches,
    record_kernels,
)
from keyrange.wire.columns import HEADERS
from keyrange.wire.fetch_response import AbortedTransaction
from unit.wire import mutations

PAGE = mmap.PAGESIZE
READS = (COLUMNS, COLUMNS, USUAL, ("key",), ("partition",), ("value", "headers"))
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

# What is free, by pages: regions between two guards, reused so that the maps stay few.
_free: dict[int, list[int]] = {}
_taken: list[tuple[int, int]] = []
_at_end = True


def _region(pages: int) -> int:
    """The address of `pages` pages with a page without access before and behind them."""
    if not _free.setdefault(pages, []):
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        prot = mmap.PROT_READ | mmap.PROT_WRITE
        base = _libc.mmap(None, (pages + 2) * PAGE, prot, private, -1, 0)
        assert base not in (None, ctypes.c_void_p(-1).value)
        for guard in (base, base + (pages + 1) * PAGE):
            assert _libc.mprotect(guard, PAGE, 0) == 0
        _free[pages].append(base + PAGE)
    return _free[pages].pop()


def empty(shape: Any, dtype: Any = float) -> np.ndarray[Any, Any]:
    """As numpy's, between guards, filled with a pattern."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    size = count * dtype.itemsize
    pages = max(-(-size // PAGE), 1)
    address = _region(pages)
    _taken.append((pages, address))
    start = address + pages * PAGE - size if _at_end else address
    raw = (ctypes.c_uint8 * size).from_address(start)
    filled = np.frombuffer(raw, np.uint8, size)
    filled.fill(0xA5)
    return filled.view(dtype).reshape(shape)


def zeros(shape: Any, dtype: Any = float) -> np.ndarray[Any, Any]:
    made = empty(shape, dtype)
    made.view(np.uint8).fill(0)
    return made


def guarded(data: bytes) -> np.ndarray[Any, Any]:
    made = empty(len(data), np.uint8)
    made[:] = np.frombuffer(data, np.uint8)
    return made


def array(items: Any, dtype: Any) -> np.ndarray[Any, Any]:
    made = empty(len(items), dtype)
    made[:] = items
    return made


def _allocate(count: int, dtype: Any) -> tuple[pa.Buffer, np.ndarray[Any, Any]]:
    made = empty(count, dtype)
    return pa.py_buffer(made), made


def frombuffer(buffer: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """As numpy's, of a copy between guards."""
    found = np.frombuffer(buffer, dtype)
    made = empty(len(found), found.dtype)
    made[:] = found
    return made


def put_guards() -> None:
    """Let the modules of keyrange.wire allocate between guards."""
    numpy = SimpleNamespace(**{name: getattr(np, name) for name in dir(np) if name != "__doc__"})
    numpy.empty, numpy.zeros, numpy.array = empty, zeros, array
    for module in (
        columns,
        compression,
        chunk_decoder,
        record_batches,
        key_range_selection,
        produced_batches,
        produced_columns,
    ):
        module.np = numpy
    produced_columns.np = SimpleNamespace(**vars(numpy) | {"frombuffer": frombuffer})
    produced_batches._region = lambda size: empty(size, np.uint8)
    columns._allocate = _allocate
    key_range_selection._bytes = lambda text: guarded(text or b"\0")


def _release() -> None:
    for pages, address in _taken:
        _free[pages].append(address)
    _taken.clear()


def selection(random: Random) -> key_range_selection.Selection:
    keys = None
    if random.random() < 0.4:
        keys = tuple(mutations.record(random).key for _ in range(random.randint(1, 3)))
    return key_range_selection.Selection(keys, random.random() < 0.5)


def placement(random: Random) -> Placement | None:
    """None, or a cut of which some may be nobody's, and all may be."""
    if random.random() < 0.4:
        return None
    inside = {
        random.choice((0, random.randint(0, HASH_MAX - 1))) for _ in range(random.randint(0, 6))
    }
    uppers = (*sorted(inside), HASH_MAX)
    return Placement(uppers, tuple(random.randint(-1, 3) for _ in uppers), 0)


def one_case(random: Random) -> None:
    """One log gone wrong, or one that is right, decoded as a task would."""
    global _at_end
    _at_end = random.random() < 0.7
    kind = random.choice(mutations.KINDS)
    data = kind(random)
    if random.random() < 0.1:
        data = b"".join(map(mutations.encode_batch, mutations.log(random)))
    low, high = random.choice((0, 0, 4)), random.choice((2**63 - 1, 2**63 - 1, 7))
    sizes = chunk_decoder.DecodeSettings(
        random.choice(READS), random.choice((1, 3, 16)), random.choice((1, 50, 1 << 20)), 1 << 18
    )
    sizes = replace(sizes, selection=selection(random))
    aborted = [AbortedTransaction(7, random.randint(0, 9))] * random.choice((0, 1))
    try:
        chunk = chunk_decoder.scan_chunk(guarded(data), "t", 0, low, aborted)
        decoder = chunk_decoder.Decoder("t", 0, sizes, placement=placement(random))
        for batch in decoder.decode(chunk, low, high):
            batch.validate(full=True)
    except KeyrangeError:
        pass
    finally:
        _release()


def one_written_case(random: Random) -> None:
    """Rows of any kind, good and bad, to batches of any size."""
    global _at_end
    _at_end = random.random() < 0.7

    # One bad row is enough for none to be written.
    is_good = random.random() < 0.6
    names = ("h", "") if is_good else ("h", "", None)
    partitions = (None, 0, 2) if is_good else (None, 0, 2, 3, -1)

    def field() -> bytes | None:
        return random.choice((None, b"", random.randbytes(random.choice((1, 3, 4, 5, 64, 200)))))

    def headers() -> list[dict[str, Any]] | None:
        few = [{"key": random.choice(names), "value": field()} for _ in range(3)]
        return random.choice((None, few[: random.randrange(4)]))

    rows = range(random.randint(1, 12))
    columns = {
        "key": pa.array([field() for _ in rows], pa.binary()),
        "value": pa.array([field() for _ in rows], pa.large_binary()),
        "headers": pa.array([headers() for _ in rows], HEADERS),
        "partition": pa.array([random.choice(partitions) for _ in rows], pa.int32()),
    }
    settings = produced_batches.BatchSettings(
        random.randint(0, 500),
        1 << 20 if is_good else random.randint(0, 500),
        random.choice(("none", "lz4")),
    )
    try:
        writer = produced_batches.RecordWriter("t", 3, settings, random.randrange(3))
        table = pa.RecordBatch.from_pydict(columns)
        for batch in writer.write(table.slice(random.randrange(2)), 5):
            produced_batches.seal(batch.data, 1, 2, 3)
    except KeyrangeError:
        assert not is_good
    finally:
        _release()


def main(arguments: list[str]) -> None:
    if arguments[0] == "overread":
        record_kernels.crc32c(guarded(b"x" * 100), 0, 101)
    elif arguments[0] == "overwrite":
        records = empty(1, record_kernels.RECORD)
        records.view(np.uint8).fill(0)
        valid, ends = empty(1, np.uint8), empty(1, np.int32)
        record_kernels.gather_bytes(guarded(b"x"), records, 1, True, ends, guarded(b""), valid)
    else:
        put_guards()
        case = one_case if len(arguments) == 2 else one_written_case
        seed, cases = map(int, arguments[-2:])
        for number in range(seed, seed + cases):
            print(number, file=sys.stderr)
            case(Random(number))
        print("survived", cases)


if __name__ == "__main__":
    main(sys.argv[1:])
