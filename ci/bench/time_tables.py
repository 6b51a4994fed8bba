"""The tables of windows, timers, Nexmark's queries and moves of state, with the targets of figures.

The groups take their targets from here.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.figures import Target, at_least, at_most
from bench.table import Table, one_figure_a_row

WINDOWS_TARGETS: Mapping[str, Target] = {
    "windows.session.vs_jvm": at_least(2),
    "windows.session.vs_transform_with_state": at_least(200),
    "windows.tumbling.arrow.vs_stateless": at_least(0.6),
    "state.arrow.vs_stateless": at_least(0.8),
    "state.record.vs_stateless": at_least(0.9),
    "timers.due_100k.seconds": at_most(2),
    "timers.idle.added_core_share": at_most(0.01),
    "timers.worker.peak_rss.mb": at_most(400),
    "timers.worker.peak_rss.anonymous.mb": at_most(400),
}
_WINDOWS = {
    "windows.session.vs_jvm": "sessions, beside `session_window` in the JVM",
    "windows.session.vs_transform_with_state": "sessions, beside `transformWithStateInPandas`",
    "windows.tumbling.arrow.vs_stateless": "tumbling windows, beside the same job without state",
    "state.arrow.vs_stateless": "count by key in Arrow batches, beside the same without state",
    "state.record.vs_stateless": "count by key record by record, beside the same without state",
    "timers.due_100k.seconds": "100,000 timers due at once: fired, written and committed",
    "timers.idle.added_core_share": "what a million timers that are not due add to an idle query",
    "timers.worker.peak_rss.mb": (
        "memory of a task, 10 million keys with windows and timers, mapped files too"
    ),
    "timers.worker.peak_rss.anonymous.mb": (
        "of it, what is no mapped file, while records of 200,000 of the keys come"
    ),
}
MOVES_TARGETS: Mapping[str, Target] = {
    "state.move.pause.prepared_vs_cold": at_most(0.1),
    "state.lost_host.pause.prepared_vs_cold": at_most(0.1),
    "state.standby.core_share": at_most(0.3),
}
_MOVES = {
    "state.move.pause.prepared_vs_cold": "half of the key ranges go to another host: the pause, "
    "with copies made before, beside without",
    "state.move.pause.prepared.ms": "with copies made before (`warmup.timeout.ms`)",
    "state.move.pause.cold.ms": "without copies",
    "state.lost_host.pause.prepared_vs_cold": "a host is lost: the pause, with a standby, beside "
    "without",
    "state.lost_host.pause.prepared.ms": "with a standby (`state.standby.replicas`)",
    "state.lost_host.pause.cold.ms": "without a standby",
    "state.standby.core_share": "what a standby costs at 100,000 changed keys in a second",
    "state.standby.mb_per_second": "what it reads then, of compressed files",
}
_RATES = {
    "windows.session.keyrange.records_per_second": "sessions",
    "windows.session.jvm.records_per_second": "sessions, Spark in the JVM",
    "windows.session.transform_with_state.records_per_second": (
        "sessions, `transformWithStateInPandas`"
    ),
    "windows.tumbling.arrow.keyed.records_per_second": "tumbling windows",
    "state.arrow.keyed.records_per_second": "count by key, Arrow batches",
    "state.record.keyed.records_per_second": "count by key, record by record",
    "timers.worker.peak_rss.anonymous.while_made.mb": (
        "memory of a task that is no mapped file, 800,000 new keys a batch"
    ),
    "timers.idle.core_share": "processor time of planning, idle, with a million timers",
    "timers.idle.without.core_share": "the same without timers",
}
_QUERIES = {
    "q3": "q3, local item suggestion: each seller's record joined with the auctions",
    "q5": "q5, hot items: bids by auction in hopping windows",
    "q7": "q7, highest bid in tumbling windows",
    "q8": "q8, new users who sell in tumbling windows",
    "q11": "q11, bids of a user's session",
    "q12": "q12, bids of a user in windows of processing time",
}
NEXMARK_TARGETS: Mapping[str, Target] = {
    f"nexmark.{number}.vs_jvm": at_least(2) for number in _QUERIES
}


def _windows() -> Table:
    """Figures that have a target."""
    targets = WINDOWS_TARGETS
    rows = {f"{label} (target {targets[name]})": (name,) for name, label in _WINDOWS.items()}
    return Table("windows", ("figure", "value (range)"), rows)


def _nexmark() -> Table:
    columns = ("vs_jvm", "keyrange.records_per_second", "jvm.records_per_second")
    target = NEXMARK_TARGETS["nexmark.q5.vs_jvm"]
    headings = ("query", f"beside Spark in the JVM (target {target})", "keyrange", "Spark")
    rows = {
        label: tuple(f"nexmark.{number}.{column}" for column in columns)
        for number, label in _QUERIES.items()
    }
    return Table("nexmark", headings, rows)


TIME_TABLES: Mapping[str, Table] = {
    "windows": _windows(),
    "windows_rates": one_figure_a_row("windows", _RATES),
    "nexmark": _nexmark(),
    "state_moves": one_figure_a_row("state_moves", _MOVES),
}
