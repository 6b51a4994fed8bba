"""What the tasks of a job do with what they read, as it is sent to them.

Nothing heavy is imported here: Spark reads this in every process that it asks about the source.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pyspark.cloudpickle import CloudPickler
from pyspark.core.broadcast import Broadcast

from keyrange.errors import error
from keyrange.keyed_state.variables import Variable
from keyrange.model.value_forms import RAW, ValueForms
from keyrange.work.job_time import JobTime
from keyrange.work.model.output_table import OutputTable
from keyrange.work.topic_rows import OutputTopic

_log = logging.getLogger(__name__)

# Spark sends the function along with every task, past what broadcasts large ones.
LARGE_BYTES: Final = 1 << 20
BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """`tables` and `topics` are where output goes, to files of `target_bytes` compressed by
    `codec`; `rows` is Spark's JSON of what tasks hand to Spark. `function` is `JobFunctions`,
    pickled, and empty where there are none; `mode` as of `keyrange.work.task_context.Job`.
    `columns` are read. `state`: what is kept for keys. `time`: what timers and late records go by.
    `forms`: how keys and values are read. `manifests`: the directory in which those of the query
    are, and rows until they are written into their table or sent to their topic. `holds`: all rows
    wait there until everything before their record is done."""

    tables: tuple[OutputTable, ...]
    rows: str
    mode: str
    columns: tuple[str, ...]
    function: bytes = field(default=b"", repr=False)
    codec: str = "snappy"
    target_bytes: int = 0
    state: tuple[Variable, ...] = ()
    time: JobTime | None = None
    forms: ValueForms = RAW
    manifests: str = ""
    topics: tuple[OutputTopic, ...] = ()
    holds: bool = False

    @property
    def digest(self) -> str:
        """Of all of it but the function, which may be large, that of the function."""
        return hashlib.sha256(repr(self).encode() + digest_of(self.function)).hexdigest()[:32]


def digest_of(function: bytes) -> bytes:
    return hashlib.sha256(function).digest()


class JobFunctions(NamedTuple):
    """What a user gives to a job: one pickle, so that both see the same objects."""

    function: Callable[..., Any]
    on_timer: Callable[..., Any] | None = None


def pickled(functions: JobFunctions) -> bytes:
    """Functions as tasks get them. Raises UNPICKLABLE_FUNCTION."""
    data = io.BytesIO()
    try:
        pickler: Any = _Pickler(data)  # type: ignore[no-untyped-call]
        pickler.dump(tuple(functions))
    except Exception as failure:
        # What an object raises that does not let itself be pickled is its own.
        reason = f"{type(failure).__name__}: {failure}"
        raise error("UNPICKLABLE_FUNCTION", f"it cannot be pickled: {reason}"[:2000]) from None
    size = data.tell()
    if size > BYTES_MAX:
        most = BYTES_MAX >> 20
        text = f"with what it holds it has {size:,} bytes, and {most} MiB are the most"
        raise error("UNPICKLABLE_FUNCTION", text)
    if size >= LARGE_BYTES:
        _log.warning(
            "the function given to keyrange.job has %s bytes with what it holds, which every task "
            "is sent anew",
            f"{size:,}",
        )
    return data.getvalue()


class _Pickler(CloudPickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Broadcast):
            raise TypeError(
                "it holds a Broadcast, which a task that reads cannot ask Spark for; let the "
                "function hold the value itself, or load it"
            )
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]
