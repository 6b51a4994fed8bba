"""Brokers with a quota plug-in of their own, which may throttle by something else than quotas."""

from __future__ import annotations

from keyrange.errors import KeyrangeError
from keyrange.guard.client_quotas import brokers_that_ignore_quotas, quota_callback
from keyrange.guard.enforcer import Say
from keyrange.kafka.cluster import Cluster


def say_of_plugin(cluster: Cluster, dry_run: bool, say: Say) -> None:
    """Say whether a plug-in lets quotas count for nothing; without one nothing is tried or said.

    In a dry run nothing is written, so that it cannot be known.
    """
    plugin = quota_callback(cluster)
    if not plugin:
        return
    if dry_run:
        say("trouble", {"error": f"the brokers' {plugin} may ignore client quotas"})
        return
    try:
        ignoring = brokers_that_ignore_quotas(cluster)
    except KeyrangeError as failure:
        said = (
            f"the brokers' {plugin} may ignore client quotas, which could not be tried: {failure}"
        )
        say("trouble", {"error": said})
        return
    if ignoring:
        names = ", ".join(map(str, ignoring))
        said = f"client quotas have no effect on brokers {names}, which have {plugin}"
        say("trouble", {"error": said})
    else:
        say("quotas count", {"plugin": plugin})
