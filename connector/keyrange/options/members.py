"""The options about members and pinned key ranges, their parsers, and how they go together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from keyrange.options.commits import CommitOptions, beside, path_mistake
from keyrange.options.key_ranges import KeyRangeOptions
from keyrange.options.option import INT32_MAX, option, text_option
from keyrange.options.value_parsers import (
    NAME_BYTES_MAX,
    Violations,
    group_up_to,
    importable,
    int_between,
    local_path,
    ms_between,
    name_up_to,
    one_of,
    path_or_uri,
    size_between,
    text,
    variable,
)

MEMBERS: Final = "_members"
MEMBERS_SUFFIX: Final = ".members"
# Heartbeats to a session: one may be lost, and the next one late.
_HEARTBEATS_MIN: Final = 3
_POSITIVE: Final = ms_between(1, INT32_MAX)


def _listener(value: str) -> str:
    return ":".join(importable("Class")(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Which executor reads what. With `pin` off tasks run anywhere, and the rest does nothing.

    `group` is the name in the table, `kafka_group` the one whose members hold the names. `host` ""
    stands for the address on the way to the brokers, `bind_address` "" for `host`, and `name`,
    `name_env`, `name_file` and `slot_directory` "" for what is usual. `kafka` are the client's
    properties as they were given, for a process that reads them anew. Durations are in ms.
    """

    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    pin: str = option(
        "pin",
        one_of("off", "prefer", "strict"),
        "Whether key ranges stay with their executors. prefer: tasks read their own executor's "
        "ranges, and other executors' ranges after pin.wait.ms. strict: only its executor reads "
        "a range while it is in the group. For streams with splitBy=keyRange; needs memberTable.",
        default="off",
        part=True,
    )
    pin_wait_ms: int = option(
        "pin.wait.ms",
        ms_between(0, INT32_MAX),
        "How long a task that has read its own ranges waits before it reads another executor's "
        "ranges (prefer), or fails (strict). With prefer an executor that stands by for one from "
        "which no task has come waits a tenth of it.",
        default="3000",
        part=True,
    )
    host: str = text_option(
        "pin.driver.host",
        text,
        "The address at which tasks ask the driver which key ranges they read. Default: the "
        "driver's own address towards the brokers.",
        values="a host name or an address",
    )
    bind_address: str = text_option(
        "pin.driver.bind.address",
        text,
        "The address at which the driver listens for tasks, as spark.driver.bindAddress is to "
        "spark.driver.host. Default: at pin.driver.host.",
        values="an address, such as 0.0.0.0",
    )
    port: int = option(
        "pin.driver.port",
        int_between(0, 65535, "a port, or 0 for any"),
        "The port at which the driver listens for tasks.",
        default="0",
    )
    listener: str = text_option(
        "keyRangeListener",
        _listener,
        "A subclass of keyrange.KeyRangeListener, by the name under which executors import it. "
        "Each executor calls it once an assignment with the key ranges that its slot gets and "
        "loses, before it reads their records. A user who may set this option can run any code "
        "that executors can import.",
        values="package.module:Class",
    )
    splits_per_core: int = option(
        "splitsPerCore",
        int_between(1, 64, "a number"),
        "Into how many pieces the driver cuts the pinned ranges of an executor for each of its "
        "cores. More pieces balance the tasks better; pieces of a partition that are not read "
        "at the same time wait in the executor's directory, or are fetched again.",
        default="1",
    )
    table: str = text_option(
        "memberTable",
        path_or_uri,
        "The Delta table of the assignments: which member has which key ranges. keyrange "
        "creates it if it is missing. Default: commitTable with _members appended.",
    )
    group: str = text_option(
        "memberGroup",
        # The Kafka group is named after it, with a suffix.
        group_up_to(NAME_BYTES_MAX - len(MEMBERS_SUFFIX)),
        f"The members' group; in Kafka it has {MEMBERS_SUFFIX} behind it. Default: commitGroup, "
        "kafka.group.id, or default.",
    )
    names: str = option(
        "memberNames",
        one_of("auto", "static", "dynamic"),
        "static: every executor has to have a name that survives its restart, or the query fails. "
        "dynamic: keyrange generates names. auto: static if the executor finds a name.",
        default="auto",
    )
    name: str = text_option(
        "member.name",
        name_up_to(NAME_BYTES_MAX),
        "The name itself, for a query with one executor or a plain consumer.",
    )
    name_env: str = text_option(
        "member.name.env",
        variable,
        "The environment variable of the executors that holds the name; it has to be set. "
        "Default: METADATA_NAME, if it is set.",
    )
    name_file: str = text_option(
        "member.name.file",
        local_path,
        "A file on a volume that outlives the executor. It holds the name; an executor creates it "
        "with a new name if it is missing.",
        values="a path on the executors",
    )
    slot_directory: str = text_option(
        "slot.directory",
        local_path,
        "The directory below which each slot has a directory for caches and state. keyrange makes "
        "these in a subdirectory that only its user can read, so a volume's root will do. "
        "Default: a directory of the user on the host.",
        values="a path on the executors",
    )
    registration_timeout_ms: int = option(
        "registration.timeout.ms",
        _POSITIVE,
        "How long a static member may be absent before the driver gives its ranges to others. The "
        "time counts from the longest absence of a member.",
        default="900000",
    )
    expansion_timeout_ms: int = option(
        "expansion.timeout.ms",
        ms_between(0, INT32_MAX),
        "How long the driver collects new members before it moves ranges to them, counted from "
        "the first one.",
        default="45000",
    )
    expected: int = option(
        "members.expected",
        int_between(0, 100_000, "a number of members"),
        "How many members there are to be. As soon as so many are there, the driver assigns key "
        "ranges to them, in one reassignment and without a wait for registration.timeout.ms or "
        "expansion.timeout.ms. `keyrange members scale` says another number while the query runs. "
        "0: nobody says.",
        default="0",
    )
    warmup_timeout_ms: int = option(
        "warmup.timeout.ms",
        ms_between(0, INT32_MAX),
        "How long key ranges stay where they are after they were announced to who gets them, "
        "unless that is ready before: an executor is as soon as it has copied the state of their "
        "keys. 0: they move at once.",
        default="5m",
    )
    warmup_bytes_per_second: int = option(
        "warmup.bytes.per.second",
        size_between(0, 2**40),
        "How much state an executor copies in a second that is not its own yet, in bytes as the "
        "files have them. 0: as much as it can.",
        default="64m",
    )
    standby_replicas: int = option(
        "state.standby.replicas",
        int_between(0, 1, "0 or 1"),
        "1: of the state of each key another executor keeps a copy, in another rack "
        "(client.rack.env) or on another host where there is one. If an executor is lost, that one "
        "works on its key ranges, and gets them after registration.timeout.ms.",
        default="0",
        part=True,
    )
    session_timeout_ms: int = option(
        "session.timeout.ms",
        _POSITIVE,
        "After so long without a heartbeat Kafka removes a member from the group. Within the "
        "broker's group.min.session.timeout.ms and group.max.session.timeout.ms.",
        default="45000",
    )
    heartbeat_interval_ms: int = option(
        "heartbeat.interval.ms",
        _POSITIVE,
        "How often a member sends a heartbeat; at most a third of session.timeout.ms.",
        default="3000",
    )
    poll_interval_ms: int = option(
        "max.poll.interval.ms",
        _POSITIVE,
        "How long a running task may hand over no records before its member leaves the group. "
        "The larger of it and session.timeout.ms counts. It does not count while no task runs.",
        default="300000",
    )

    @property
    def pinned(self) -> bool:
        return self.pin != "off"

    @property
    def kafka_group(self) -> str:
        return self.group + MEMBERS_SUFFIX


def choose_members(
    given: MemberOptions,
    key_ranges: KeyRangeOptions,
    commits: CommitOptions,
    client: Mapping[str, str],
    violations: Violations,
) -> MemberOptions:
    """The options about members with what is made of several of them; `client` are the client's
    properties as texts."""
    pin = given.pin
    table = given.table or beside(commits.table, MEMBERS)
    if pin != "off":
        if key_ranges.split_by != "keyRange":
            violations.add("pin", f"{pin} needs splitBy=keyRange")
        if key_ranges.partial or key_ranges.ranges:
            violations.add("pin", f"{pin} is not valid with keyRanges: members have the ranges")
        if not table:
            violations.add("pin", f"{pin} needs memberTable, the table of assignments")
        for option, path in (
            ("commitTable", commits.table),
            ("deadLetterTable", commits.dead_letter_table),
        ):
            if path and path.rstrip("/") == table.rstrip("/"):
                violations.add("memberTable", f"must not be the same path as {option}")
    for option, path in (("memberTable", given.table), ("slot.directory", given.slot_directory)):
        # What is relative lies somewhere else for each process.
        if path and (mistake := path_mistake(path)) is not None:
            violations.add(option, mistake)
    if given.standby_replicas and pin == "off":
        violations.add("state.standby.replicas", "needs pin: without it no executor has key ranges")
    if given.listener and pin == "off":
        violations.add("keyRangeListener", "needs pin: without it executors have no key ranges")
    session_ms, heartbeat_ms = given.session_timeout_ms, given.heartbeat_interval_ms
    if heartbeat_ms * _HEARTBEATS_MIN > session_ms:
        violations.add(
            "heartbeat.interval.ms",
            f"must be at most a third of session.timeout.ms: {heartbeat_ms} and {session_ms}",
        )
    given = replace(given, table=table, group=given.group or commits.group)
    if pin == "off":
        return given
    return replace(given, kafka=dict(client))
