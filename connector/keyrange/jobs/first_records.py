"""Mistakes by which nothing fails, and nothing comes: what is said of the first batch of a run that
has records. In a later one it may be so by chance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from keyrange.individual_commits.model.verdict_manifest import Manifest
from keyrange.jobs.definition import JobDefinition

# Seconds since 1970 that are read as ms lie before it, until the year 5138.
_EARLY_US: Final = 100_000_000_000 * 1000


def warnings_of(manifest: Manifest, job: JobDefinition) -> Iterator[str]:
    done = manifest.done
    is_staged = any(each.is_staged for each in job.tables)
    if done and not (job.state or is_staged or manifest.rows.get("file")):
        yield (
            f"{done:,} records are done, and no row was made of them: the function answered with "
            "None, as one without return does"
        )
    if done and job.time is not None and job.time.is_event_time:
        latest_us = [at_us for _, _, at_us, _ in manifest.rows.get("event_time", ())]
        if not latest_us:
            yield (
                f"of {done:,} records none has an event time that counts: all are further ahead of "
                "the clock than EventTime(ahead=...) says, and no watermark moves; a long holds ms "
                "since 1970"
            )
        elif 0 <= max(latest_us) < _EARLY_US:
            yield (
                "all event times are before March 1973: a long holds ms since 1970, and these look "
                "like seconds"
            )
