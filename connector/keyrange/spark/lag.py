"""A listener that tells how far queries are behind Kafka.

Spark takes no metrics from Python sources, so they are computed from the progress of a query, where
Spark runs listeners: beside the session, also with Spark Connect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from keyrange.core.lag import QueryLag, read_query_lag

_log = logging.getLogger(__name__)


class LagListener(StreamingQueryListener):
    """`spark.streams.addListener(keyrange.LagListener())`

    Calls `report` with a `keyrange.core.lag.QueryLag` on every progress of a query that reads with
    keyrange. The default logs one line, at INFO. What `report` raises is logged, and goes no
    further: a listener must not fail.
    """

    def __init__(self, report: Callable[[QueryLag], None] | None = None) -> None:
        self._report = report if report is not None else _log_line

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        try:
            lag = read_query_lag(event.progress)
            if lag is not None:
                self._report(lag)
        except Exception:
            _log.exception("the lag of a query could not be reported")

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


def _log_line(lag: QueryLag) -> None:
    _log.info("%s", lag)
