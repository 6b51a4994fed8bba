"""A listener that tells of every finished batch: a line in the log, metrics, a file.

Spark runs listeners where the session is, also with Spark Connect, and one event after the other.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from keyrange.individual_commits.last_batch_results import merged_of, result_of
from keyrange.observing.model.failure_causes import first_cause, last_cause
from keyrange.observing.model.query_metrics import QueryMetrics, Sample
from keyrange.observing.model.query_progress import (
    QueryProgress,
    batch_fields,
    batch_line,
    read_query_progress,
    with_result,
)
from keyrange.observing.progress_file import BYTES_MAX, ProgressFile
from keyrange.text.escaping import one_line

_log = logging.getLogger(__name__)

# So many runs and queries are remembered: those that were heard of last.
_KNOWN_MAX: Final = 1_000


class ProgressListener(StreamingQueryListener):
    """`spark.streams.addListener(keyrange.ProgressListener())`

    Tells of each batch of the queries that read with keyrange; all others are left alone. Every
    batch is a line in the log, at INFO, and every run that ends, at ERROR where it failed; `log`
    and `log_ends` switch these off. `report` is called with each batch, a
    `keyrange.observing.model.query_progress.QueryProgress`.

    `prometheus` and `opentelemetry` are True, or a registry and a MeterProvider. The lag of single
    partitions is told of the first `partitions` of a source.

    `progress_file` gets a line of JSON for each batch: a path on this machine. With it, and one
    more file beside it, `progress_bytes` bounds how much is kept.

    Raises INVALID_OPTIONS where a library that is asked for is not installed, and where the file is
    no path on this machine. Afterwards nothing is raised: a listener must not fail. What goes wrong
    is logged, once until it goes well again.
    """

    def __init__(
        self,
        *,
        log: bool = True,
        log_ends: bool = True,
        progress_file: str | Path | None = None,
        progress_bytes: int = BYTES_MAX,
        prometheus: Any = False,
        opentelemetry: Any = False,
        partitions: int = 0,
        report: Callable[[QueryProgress], None] | None = None,
    ) -> None:
        self._logs = log
        self._logs_ends = log_ends
        self._report = report
        self._file = ProgressFile(progress_file, progress_bytes) if progress_file else None
        self._metrics = QueryMetrics(partitions)
        self._partitions = partitions
        self._lock = threading.Lock()
        # Label and last batch of the runs that keyrange reads for.
        self._runs: dict[str, tuple[str, int]] = {}
        # Label of each query by its id, which stays over restarts, and whether it reads with
        # keyrange: a run that fails before its first batch does not say so.
        self._queries: dict[str, tuple[str, bool]] = {}
        self._ended = threading.Condition(self._lock)
        self._ended_runs: dict[str, None] = {}
        self._said: set[str] = set()
        if prometheus is not False and prometheus is not None:
            from keyrange.observing.exporters import to_prometheus

            to_prometheus(self.samples, prometheus)
        if opentelemetry is not False and opentelemetry is not None:
            from keyrange.observing.exporters import to_opentelemetry

            to_opentelemetry(self.samples, opentelemetry)

    def samples(self) -> list[Sample]:
        """All figures as they are now. May be called from any thread."""
        with self._lock:
            return list(self._metrics.samples())

    def wait_ended(self, run_id: str, timeout_s: float) -> bool:
        """Wait until everything was told of a run that has ended; whether it was, in time."""
        with self._ended:
            return self._ended.wait_for(lambda: run_id in self._ended_runs, timeout_s)

    def onQueryStarted(self, event: Any) -> None:
        with self._guarded("the start of a query"), self._lock:
            query_id = str(event.id)
            _, ours = self._queries.get(query_id, ("", False))
            _remember(self._queries, query_id, (event.name or query_id, ours))

    def onQueryProgress(self, event: Any) -> None:
        with self._guarded("the progress of a query"):
            document = _document(event.progress)
            progress = read_query_progress(document)
            if progress is None:
                return
            result = result_of(progress.query_id, progress.batch_id)
            if result is not None:
                progress = with_result(progress, result)
            merged = merged_of(progress.query_id, progress.batch_id)
            progress = replace(progress, merged=merged)
            with self._lock:
                _remember(self._runs, progress.run_id, (progress.label, progress.batch_id))
                _remember(self._queries, progress.query_id, (progress.label, True))
                self._metrics.observe(progress, time.time())
            if self._logs:
                fields = {"event": "batch", **batch_fields(progress)}
                _log.info("%s", batch_line(progress), extra={"keyrange": fields})
            self._say_cut(progress)
            if self._file is not None:
                with self._guarded(f"the progress file {self._file.path}"):
                    self._file.append(document)
            if self._report is not None:
                self._report(progress)

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None:
        run_id = str(event.runId)
        with self._guarded("the end of a query"):
            with self._lock:
                label, ours = self._queries.get(str(event.id), (str(event.id), False))
                known = self._runs.pop(run_id, None)
                label, batch_id = known or (label, None)
                ours = ours or known is not None or "keyrange" in (event.exception or "")
                if ours:
                    self._metrics.end(label, run_id, event.exception is not None)
            if self._logs_ends and ours:
                _log_end(event, label, batch_id)
        with self._ended:
            _remember(self._ended_runs, run_id, None)
            self._ended.notify_all()

    def _say_cut(self, progress: QueryProgress) -> None:
        """That only some partitions have a figure of their own, where others are missed."""
        most = max(len(source.behind) for source in progress.sources)
        key = f"partitions of {progress.label}"
        if 0 < self._partitions < most and key not in self._said:
            self._said.add(key)
            _log.warning(
                "the lag of %d of %d partitions of query %s has a metric of its own",
                self._partitions,
                most,
                one_line(progress.label),
            )

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """Lets nothing out, and says what went wrong: once, until it goes well again."""
        try:
            yield
            self._said.discard(what)
        except Exception as failure:
            if what not in self._said:
                self._said.add(what)
                # An OSError says by itself what is wrong, of all others the place is wanted.
                place = None if isinstance(failure, OSError) else failure
                _log.warning("%s could not be told: %s", what, failure, exc_info=place)


def _document(progress: Any) -> dict[str, Any]:
    """A progress as JSON has it, from what classic sessions and Spark Connect hand over."""
    text = getattr(progress, "json", None)
    document = json.loads(text) if isinstance(text, str) else progress
    if not isinstance(document, dict):
        raise TypeError("a progress is a JSON object")
    return document


def _log_end(event: Any, label: str, batch_id: int | None) -> None:
    """Of a failure only what is keyrange's own is told, since others may quote a record."""
    after = f" after batch {batch_id}" if batch_id is not None else ""
    cause, text = getattr(event, "errorClassOnException", None), event.exception
    fields = {
        "event": "failed" if text is not None else "ended",
        "query": label,
        "query_id": str(event.id),
        "run_id": str(event.runId),
        "batch_id": batch_id,
        "error_class": cause,
    }
    what = "query %s %s%s"
    name = one_line(label)
    if text is None:
        _log.info(what, name, "has ended", after, extra={"keyrange": fields})
        return
    found = ", ".join(filter(None, (cause, last_cause(text))))
    why = first_cause(text) or found or "see what Spark says of it"
    _log.error(f"{what}: %s", name, "has failed", after, why, extra={"keyrange": fields})


def _remember(known: dict[str, Any], name: str, value: Any) -> None:
    known.pop(name, None)
    known[name] = value
    while len(known) > _KNOWN_MAX:
        del known[next(iter(known))]
