"""Where the processor time of a reading task goes: fetched, decoded and handed over as in the
source, in this process, with every part's calls timed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa

from keyrange.wire import kernels
from keyrange.wire.columns import ColumnWriter
from keyrange.wire.compression import Bytes, Scratch
from keyrange.wire.decode import Decoder, DecodeSettings, scan_chunk

# A task's work in its order. What is between the calls of these parts is "rest".
PARTS = ("fetch", "scan", "decompress", "index", "gather", "handover", "rest")
_DECODING = (
    ("decompress", Scratch, "append"),
    ("index", kernels, "index_records"),
    ("gather", ColumnWriter, "write"),
)


def seconds_of_parts(topic: str, chunks: Iterator[tuple[int, Bytes]]) -> dict[str, float]:
    """Processor time of each part for chunks that are fetched as they are asked for."""
    spent = dict.fromkeys(PARTS, 0.0)

    def timed(part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            started = time.process_time()
            try:
                return call(*arguments, **named)
            finally:
                spent[part] += time.process_time() - started

        return run

    decoder = Decoder(topic, 0, DecodeSettings())
    started = time.process_time()
    with ExitStack() as stack:
        for part, owner, name in _DECODING:
            stack.enter_context(mock.patch.object(owner, name, timed(part, getattr(owner, name))))
        hand_over = timed("handover", stack.enter_context(_jvm(decoder.schema)).write_batch)
        next_chunk, scan = timed("fetch", next), timed("scan", scan_chunk)
        while (found := next_chunk(chunks, None)) is not None:
            offset, data = found
            chunk = scan(data, topic, 0, offset)
            for batch in decoder.decode(chunk, offset, 1 << 62):
                hand_over(batch)
    whole = time.process_time() - started
    spent["rest"] = whole - sum(spent.values())
    return spent


@contextmanager
def _jvm(schema: pa.Schema) -> Iterator[pa.ipc.RecordBatchStreamWriter]:
    """A stream to another process, which throws away what it gets."""
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as other,
        pa.ipc.new_stream(other.stdin, schema) as stream,
    ):
        yield stream
