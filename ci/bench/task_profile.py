"""Where the processor time of a task goes: chunks are fetched, decoded and handed over as in the
source, and written as in a job, in this process, with every part's calls timed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from keyrange.storage.data_files import DataFileWriter
from keyrange.wire import record_kernels
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk
from keyrange.wire.columns import ColumnWriter
from keyrange.wire.compression import Bytes, Scratch

# A reading task's work in its order. What is between the calls of these parts is "rest".
READING = ("fetch", "scan", "decompress", "index", "gather", "handover", "rest")
# What a job does in the place of the hand-over; and of that what compression takes alone.
WRITING = ("write", "snappy")
# As large as Parquet's pages.
_PAGE_BYTES = 1 << 20
_DECODING = (
    ("decompress", Scratch, "append"),
    ("index", record_kernels, "index_records"),
    ("gather", ColumnWriter, "write"),
)


def seconds_of_parts(
    topic: str, chunks: Iterator[tuple[int, Bytes]], directory: Path
) -> dict[str, float]:
    """Processor time of each part for chunks that are fetched as they are asked for; files of the
    job are left in `directory`."""
    spent = dict.fromkeys((*READING, *WRITING), 0.0)

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
        files = DataFileWriter(str(directory), decoder.schema)
        write, finish = timed("write", files.add), timed("write", files.finish)
        compress = timed("snappy", _compress)
        while (found := next_chunk(chunks, None)) is not None:
            offset, data = found
            chunk = scan(data, topic, 0, offset)
            for batch in decoder.decode(chunk, offset, 1 << 62):
                hand_over(batch)
                write(batch)
                compress(batch)
        finish()
    whole = time.process_time() - started
    spent["rest"] = whole - sum(spent.values())
    return spent


def _compress(batch: pa.RecordBatch) -> None:
    values = batch.column("value").buffers()[2]
    for at in range(0, values.size, _PAGE_BYTES):
        pa.compress(values[at : at + _PAGE_BYTES], codec="snappy")


@contextmanager
def _jvm(schema: pa.Schema) -> Iterator[pa.ipc.RecordBatchStreamWriter]:
    """A stream to another process, which throws away what it gets."""
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as other,
        pa.ipc.new_stream(other.stdin, schema) as stream,
    ):
        yield stream
