"""What the options about members come to, checked against one another and the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from keyrange.members.model.binding import PinRule
from keyrange.options.commits import beside
from keyrange.options.member_rows import MEMBERS_SUFFIX
from keyrange.options.parsing import Violations

MEMBERS: Final = "_members"
# Heartbeats to a session: one may be lost, and the next one late.
_HEARTBEATS_MIN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Which executor reads what; `rule` None stands for tasks that run anywhere, and the rest for
    nothing then.

    `group` is the name in the table, `kafka_group` the one whose members hold the names. `host` ""
    stands for the address on the way to the brokers, `bind_address` "" for `host`, and `name`,
    `name_env`, `name_file` and `slot_directory` "" for what is usual. `kafka` are the client's
    properties as they were given, for a process that reads them anew. Durations are in ms.
    """

    rule: PinRule | None = None
    host: str = ""
    bind_address: str = ""
    port: int = 0
    splits_per_core: int = 1
    table: str = ""
    group: str = ""
    # auto, static or dynamic
    names: str = "auto"
    name: str = ""
    name_env: str = ""
    name_file: str = ""
    slot_directory: str = ""
    registration_timeout_ms: int = 900_000
    expansion_timeout_ms: int = 45_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    poll_interval_ms: int = 300_000
    # package.module:Class, "" for none
    listener: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def pinned(self) -> bool:
        return self.rule is not None

    @property
    def kafka_group(self) -> str:
        return self.group + MEMBERS_SUFFIX


def choose_members(
    values: dict[str, Any], client: Mapping[str, str], violations: Violations
) -> None:
    """Check what was parsed against one another, and put it together as `members`. After
    `choose_commits`. `client` are the client's properties as texts."""
    pin = values["pin"]
    table = values["member_table"] or beside(values["commit_table"] or "", MEMBERS)
    if pin != "off":
        if values["split_by"] != "keyRange":
            violations.add("pin", f"{pin} needs splitBy=keyRange")
        if values["key_ranges"].partial or values["ranges"]:
            violations.add("pin", f"{pin} is not valid with keyRanges: members have the ranges")
        if not table:
            violations.add("pin", f"{pin} needs memberTable, which says who has which ranges")
    if values["key_range_listener"] and pin == "off":
        violations.add("keyRangeListener", "needs pin: without it executors have no key ranges")
    session_ms, heartbeat_ms = values["session_timeout_ms"], values["heartbeat_interval_ms"]
    if heartbeat_ms * _HEARTBEATS_MIN > session_ms:
        violations.add(
            "heartbeat.interval.ms",
            f"must be at most a third of session.timeout.ms: {heartbeat_ms} and {session_ms}",
        )
    rule = PinRule(strict=pin == "strict", wait_ms=values["pin_wait_ms"])
    values["members"] = MemberOptions(
        rule=None if pin == "off" else rule,
        host=values["pin_host"] or "",
        bind_address=values["pin_bind_address"] or "",
        port=values["pin_port"],
        splits_per_core=values["splits_per_core"],
        table=table,
        group=values["member_group"] or values["commits"].group,
        names=values["member_names"],
        name=values["member_name"] or "",
        name_env=values["member_name_env"] or "",
        name_file=values["member_name_file"] or "",
        slot_directory=values["slot_directory"] or "",
        registration_timeout_ms=values["registration_timeout_ms"],
        expansion_timeout_ms=values["expansion_timeout_ms"],
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        poll_interval_ms=values["poll_interval_ms"],
        listener=":".join(values["key_range_listener"] or ()),
        kafka={} if pin == "off" else dict(client),
    )
