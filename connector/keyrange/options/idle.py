"""Options that are given and change nothing, because the one that they need is not: no error, since
a query may keep them over a change of that one, and rarely meant."""

from __future__ import annotations

from collections.abc import Iterator

from keyrange.options.source import SourceOptions


def idle_options(options: SourceOptions) -> Iterator[str]:
    """Each with the option that would make it count."""
    volumes, members = options.volumes, options.members
    limited = (volumes.min_available_bytes, volumes.min_available_ratio) != (None, None)
    split_by = options.key_ranges.split_by
    for option, given, counts, needed in (
        ("commitTable", options.commits.table, options.commits.individual, "commitMode=individual"),
        ("memberTable", members.table, members.pinned or options.commits.table, "pin"),
        ("min.available.*", limited, volumes.admission, "guard.admission=true"),
        (
            "keyRangesPerPartition",
            options.key_ranges.ranges_per_partition is not None,
            split_by == "keyRange",
            "splitBy=keyRange",
        ),
    ):
        if given and not counts:
            yield f"option '{option}' changes nothing without {needed}"
