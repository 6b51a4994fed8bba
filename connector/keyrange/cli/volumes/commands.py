"""`keyrange volumes`: how full the volumes of a cluster are, and what the guard makes of it.

Rule of this file: it asks the cluster and prints, without Spark. Heavy modules are imported when a
command runs. Each look at the volumes is a document.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Annotated, Any, Final

import typer

from keyrange.cli.exit_codes import ExitCode
from keyrange.cli.render import (
    Columns,
    OutputFormat,
    OutputOption,
    note,
    print_aligned,
    print_as,
    print_text,
    print_words,
    table_of,
)
from keyrange.cli.values import iso, now, read_pause
from keyrange.cli.volumes.guard import GivenCluster, guard, reap, release
from keyrange.guard.model.throttle_factor import Factor, Throttle
from keyrange.guard.model.volume_readings import View
from keyrange.model.volumes import Limit, Policy, Volume
from keyrange.options.volume_checks import ADMIN_PREFIX, VolumeOptions, parse_volume_options
from keyrange.options.volumes import VOLUME_ROWS
from keyrange.report.wording import factor_text, volume_state
from keyrange.text.escaping import one_line
from keyrange.text.formats import moment, percent, size_text, span


def looks(options: VolumeOptions, pause_ms: int) -> Iterator[dict[str, Any]]:
    """One document a check, without an end. Without a limit there is no factor."""
    from keyrange.guard.clock import monotonic_ms
    from keyrange.guard.factor_sources import check_timeout_ms
    from keyrange.guard.log_dirs import LogDirReader

    assert options.client is not None
    throttle = None if options.policy is None else Throttle(options.policy, monotonic_ms())
    view = View(options.validity_ms) if throttle is None else throttle.view
    limit = None if options.policy is None else options.policy.limit
    with closing(LogDirReader(options.client)) as reader:
        while True:
            reading = reader.read(check_timeout_ms(options.interval_ms))
            # The same moment, of the view's clock and since 1970.
            now_ms, wall_ms = monotonic_ms(), now()
            (view if throttle is None else throttle).observe(reading, now_ms)
            factor = None if throttle is None else throttle.factor(now_ms)
            told = {(each.broker, each.log_dir) for each in reading.volumes}
            yield {
                "at": iso(wall_ms),
                "brokers": sorted(reading.brokers),
                "failure": reading.failure,
                "limit": "" if limit is None else str(limit),
                "factor": factor and _factor(factor, wall_ms - now_ms),
                "volumes": [
                    _volume(each, view, options.policy, told) for each in view.volumes(now_ms)
                ],
            }
            time.sleep(pause_ms / 1000)


class VolumeLooks:
    """The next look at each call, by those of a command's options that are about volumes.

    `skipped` looks come before the first that is given: what grows shows between two.
    """

    def __init__(self, named: Mapping[str, str], pause_ms: int = 0, skipped: int = 0) -> None:
        self._named = named
        self._pause_ms = pause_ms
        self._skipped = skipped
        self._looks: Iterator[dict[str, Any]] | None = None

    def __call__(self) -> dict[str, Any]:
        """Raises what a look fails with; the call after it begins anew."""
        current, self._looks = self._looks or self._begin(), None
        document = next(current)
        self._looks = current
        return document

    def _begin(self) -> Iterator[dict[str, Any]]:
        known = {row.name.lower() for row in VOLUME_ROWS}
        given = {
            name: value
            for name, value in self._named.items()
            if name.lower() in known or name.lower().startswith(ADMIN_PREFIX)
        }
        begun = looks(parse_volume_options(given, needs_limit=False), self._pause_ms)
        for _ in range(self._skipped):
            next(begun)
        return begun


def _factor(factor: Factor, since_1970_ms: int) -> dict[str, Any]:
    return {
        "value": factor.value,
        "why": factor.why,
        "since": iso(since_1970_ms + factor.since_ms),
        "fallback": factor.is_fallback,
        "recovered": factor.has_recovered,
        "time_to_full_ms": factor.time_to_full_ms,
    }


def _volume(
    volume: Volume, view: View, policy: Policy | None, told: set[tuple[int, str]]
) -> dict[str, Any]:
    limit = None if policy is None else policy.limit
    return {
        "broker": volume.broker,
        "log_dir": volume.log_dir,
        "total_bytes": volume.total_bytes,
        "used_bytes": volume.used_bytes,
        "available_bytes": volume.usable_bytes,
        "available_ratio": round(volume.ratio, 6),
        "violated": None if limit is None else limit.is_violated(volume),
        "recovered": policy and policy.limit.is_recovered(volume, policy.recovery),
        "limit_ratio": _limit_ratio(volume, limit),
        "time_to_full_ms": view.time_to_full_ms(volume),
        "told": (volume.broker, volume.log_dir) in told,
    }


def _limit_ratio(volume: Volume, limit: Limit | None) -> float | None:
    """What has to stay available, as a part of the volume."""
    if limit is None or volume.total_bytes <= 0:
        return None
    own = limit.of(volume)
    if own.min_available_ratio is not None:
        return own.min_available_ratio
    assert own.min_available_bytes is not None
    return min(own.min_available_bytes / volume.total_bytes, 1.0)


app = typer.Typer(
    no_args_is_help=True, help="Watch the disks of brokers; slow and release producers."
)

app.command()(guard)
app.command()(reap)
app.command()(release)


WIDTH: Final = 30
USED, FREE, LIMIT = "#", ".", "|"


@app.command()
def show(
    given: GivenCluster,
    checks: Annotated[
        int, typer.Option(min=1, help="How many checks; the prediction is by what grows meanwhile.")
    ] = 2,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="The pause between two checks, such as 2s.")
    ] = "2s",
    follow: Annotated[
        bool, typer.Option("--follow", help="Print every check, and go on until Ctrl-C.")
    ] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show the free space of each volume, and the throttle factor.

    The limit is --option min.available.ratio=0.1 or min.available.bytes=10g, as for a query. Where
    the last check did not observe every volume, the exit code is 1.
    """
    pause_ms = read_pause(every, "--every")
    options = given.options(needs_limit=False)
    for number, document in enumerate(looks(options, pause_ms), start=1):
        last = number >= checks and not follow
        if follow or last:
            print_as(output, "volumes.show/1", document, _print)
        if last:
            if document["failure"]:
                raise typer.Exit(ExitCode.FINDING)
            return


def _print(document: Mapping[str, Any]) -> None:
    factor = document["factor"]
    if factor is not None:
        print_words(f"throttle factor {factor_text(factor)}, since {moment(factor['since'])} UTC")
        print_words(f"because {factor['why']}")
    if document["volumes"]:
        print_aligned(*table_of(_VOLUMES, document["volumes"]))
    else:
        print_text("no volume was observed")
    if document["failure"]:
        note(f"not observed: {one_line(document['failure'])}")


_VOLUMES: Final[Columns] = {
    "broker": "broker",
    "log dir": lambda each: one_line(each["log_dir"]),
    "used": lambda each: f"[{bar(1 - each['available_ratio'], each['limit_ratio'])}]",
    "available": lambda each: size_text(each["available_bytes"]),
    "of": lambda each: size_text(each["total_bytes"]),
    "free": lambda each: percent(each["available_ratio"]),
    "full in": lambda each: (
        None if each["time_to_full_ms"] is None else span(each["time_to_full_ms"])
    ),
    "": volume_state,
}


def bar(used: float, kept: float | None, width: int = WIDTH) -> str:
    """How full a volume is, as a line of text: filled from the left by what is `used`. A line
    stands where what is to be `kept` free begins. Both are parts of the volume, 0 to 1."""
    filled = min(max(round(used * width), 0), width)
    # Nearly full is not full, and nearly empty not empty.
    if used < 1:
        filled = min(filled, width - 1)
    if used > 0:
        filled = max(filled, 1)
    cells = [USED] * filled + [FREE] * (width - filled)
    if kept is not None:
        cells.insert(min(max(round((1 - kept) * width), 0), width), LIMIT)
    return "".join(cells)
