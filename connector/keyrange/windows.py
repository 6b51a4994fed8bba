"""Windows of the records of each key, in the place of a job's function: `keyrange.job(options,
keyrange.windows.tumbling("1h").count(), time=keyrange.EventTime("at", delay="10m"))`."""

from __future__ import annotations

from keyrange.windowing.windowed import WindowedAggregation, hopping, session, tumbling

__all__ = ["WindowedAggregation", "hopping", "session", "tumbling"]
