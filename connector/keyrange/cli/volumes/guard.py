"""`keyrange volumes guard`, `reap` and `release`: slowing producers down, and letting them go.

Rule of this file: a line of JSON for everything that is done; nothing is written to the cluster in
a dry run, or without --confirm.
"""

from __future__ import annotations

import secrets
import signal
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keyrange.cli.arguments import named_values
from keyrange.cli.commits.reset import ConfirmOption
from keyrange.cli.exit_codes import ExitCode
from keyrange.cli.render import note, print_document
from keyrange.cli.source_options import SourceOptionsOption
from keyrange.cli.values import iso, now
from keyrange.guard.model import quota_requests
from keyrange.options.volume_checks import VolumeOptions, parse_volume_options

if TYPE_CHECKING:
    from keyrange.guard.volume_watch import Watch
    from keyrange.kafka.cluster import Cluster

_CHANCE_BITS = 20


AdminServersOption = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT,...",
        help="The Kafka cluster, for its admin client.",
    ),
]


@dataclass(frozen=True, slots=True)
class GivenCluster:
    """The cluster whose volumes a command is about, and options of the guard."""

    bootstrap_servers: AdminServersOption = ""
    option: SourceOptionsOption = None

    def options(self, needs_limit: bool = True) -> VolumeOptions:
        """Raises INVALID_OPTIONS that names all that is wrong."""
        options = named_values(self.option or [])
        if self.bootstrap_servers:
            options["kafka.admin.bootstrap.servers"] = self.bootstrap_servers
        return parse_volume_options(options, needs_limit)


def guard(
    given: GivenCluster,
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Serve figures for Prometheus there; 0: do not.")
    ] = 0,
    metrics_host: Annotated[str, typer.Option(help="The address to serve them at.")] = "127.0.0.1",
) -> None:
    """Watch the volumes, and slow producers if one is nearly full.

    The command alters quotas only with guard.enforce=true and guard.dry.run=false; otherwise it
    prints what it would alter. SIGTERM, Ctrl-C, a hang-up and the end of the process that reads the
    output end it, and it restores the quotas first. Exit code 3: it could not do so in time.
    """
    from keyrange.guard.volume_watch import take_watch

    options = given.options()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # What nohup has it ignore stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: stop.set())
    watch = take_watch(options)
    watch.first()
    speaker = Speaker(stop)
    if metrics_port:
        from keyrange.guard.metrics import VolumeCollector
        from keyrange.observing.exporters import serve

        serve(metrics_port, metrics_host, VolumeCollector(lambda: watch.figures))
        speaker("metrics", {"address": f"{metrics_host}:{metrics_port}"})
    follower = threading.Thread(target=_follow, args=(watch, stop, speaker), daemon=True)
    follower.start()
    is_free = True
    if options.enforce:
        is_free = _enforce(options, watch, stop, speaker)
    else:
        stop.wait()
    if not is_free:
        note("what is held could not be released in time: run `keyrange volumes reap`")
        raise typer.Exit(ExitCode.THROTTLED)
    if speaker.is_unheard:
        raise BrokenPipeError


def reap(given: GivenCluster) -> None:
    """Release the quotas of a dead guard; for a CronJob or a timer.

    If no quota is lowered, the command ends at once. Otherwise it waits for guard.lease.ms, to see
    whether a guard lives. Exit code 3: a live guard still keeps quotas low.
    """
    from keyrange.guard.enforcer import QuotaStore
    from keyrange.guard.reaper import reap_dead

    options = given.options(needs_limit=False)
    with _cluster(options) as cluster:
        if not reap_dead(QuotaStore(cluster), options.lease_ms, Speaker()):
            raise typer.Exit(ExitCode.THROTTLED)


def release(given: GivenCluster, confirm: ConfirmOption = False) -> None:
    """Release the quotas of any guard.

    Stop the guard first: a live guard lowers them again. Without --confirm the command only prints
    what it would alter. Exit code 3: a live guard has lowered a quota again, or the brokers do not
    know of the release yet.
    """
    from keyrange.guard.enforcer import QuotaStore, described
    from keyrange.guard.reaper import release_all

    options = given.options(needs_limit=False)
    with _cluster(options) as cluster:
        store = QuotaStore(cluster)
        if not confirm:
            commands = quota_requests.release(store.read(), 0)
            for command in commands:
                say("would release", described(command))
            if commands:
                note("nothing was altered: --confirm does it")
            else:
                say("nothing is held", {})
        elif not release_all(store, options.lease_ms, Speaker()):
            note("something is held still: stop the guard, then release again")
            raise typer.Exit(ExitCode.THROTTLED)


def say(what: str, details: dict[str, Any]) -> None:
    """One line of JSON on stdout."""
    print_document("volumes.event/1", {"at": iso(now()), "what": what, **details})


class Speaker:
    """Says what is done, and never fails: whoever speaks is in the middle of altering quotas.

    Where nobody reads any more `stop` is set, so that what is held is let go of. A line that cannot
    be written otherwise is left out: a disk that is full is what the guard is there for.
    """

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop
        # A line of one thread does not end up within that of another.
        self._lock = threading.Lock()
        self.is_unheard = False

    def __call__(self, what: str, details: dict[str, Any]) -> None:
        with self._lock:
            if self.is_unheard:
                return
            try:
                say(what, details)
            except BrokenPipeError:
                self.is_unheard = True
                if self._stop is not None:
                    self._stop.set()
            except OSError:
                pass


def _cluster(options: VolumeOptions) -> closing[Cluster]:
    from keyrange.kafka.cluster import Cluster

    assert options.client is not None
    return closing(Cluster(options.client))


def _enforce(options: VolumeOptions, watch: Watch, stop: threading.Event, say: Speaker) -> bool:
    from keyrange.guard.enforcer import Enforcer, QuotaStore, settings_of
    from keyrange.guard.quota_plugin import say_of_plugin
    from keyrange.guard.quota_sources import base_rate

    # Another guard by each start.
    chance = secrets.randbits(_CHANCE_BITS)
    settings = settings_of(options, base_rate(options), int(time.time()), chance)
    with _cluster(options) as cluster:
        say_of_plugin(cluster, settings.dry_run, say)
        say("guard", {"floor": settings.floor, "base": settings.base, "dry_run": settings.dry_run})
        return Enforcer(settings, QuotaStore(cluster), lambda: watch.factor, say).run(stop)


def _follow(watch: Watch, stop: threading.Event, say: Speaker) -> None:
    """Say each change of the factor."""
    before = None
    while not stop.is_set():
        factor = watch.factor
        if (factor.value, factor.is_fallback) != before:
            before = (factor.value, factor.is_fallback)
            say(
                "factor", {"value": factor.value, "why": factor.why, "fallback": factor.is_fallback}
            )
        stop.wait(0.5)
