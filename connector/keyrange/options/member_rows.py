"""The rows of the options about members and pinned key ranges, and their parsers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from keyrange.options.option import INT32_MAX, STREAM, Option
from keyrange.options.parsing import (
    NAME_BYTES_MAX,
    group_up_to,
    importable,
    int_between,
    local_path,
    name_up_to,
    one_of,
    place,
    text,
)

_MS: Final = "ms"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value.strip()):
        raise ValueError("must be the name of an environment variable")
    return value.strip()


def _ms() -> Callable[[str], int]:
    return int_between(1, INT32_MAX)


MEMBERS_SUFFIX: Final = ".members"

MEMBER_ROWS: Final = (
    Option(
        "pin",
        "pin",
        "off",
        STREAM,
        one_of("off", "prefer", "strict"),
        "off, prefer, strict",
        "Whether key ranges stay with their executors. prefer: tasks read their own executor's "
        "ranges, and others' after pin.wait.ms. strict: a range is read in its executor only, as "
        "long as that is there. For streams with splitBy=keyRange; needs memberTable.",
    ),
    Option(
        "pin.wait.ms",
        "pin_wait_ms",
        "3000",
        STREAM,
        int_between(0, INT32_MAX),
        _MS,
        "How long a task without anything of its own left waits before it reads another "
        "executor's ranges (prefer), or fails (strict).",
    ),
    Option(
        "pin.driver.host",
        "pin_host",
        None,
        STREAM,
        text,
        "a host name or an address",
        "Where tasks find the driver when they ask what they read. Default: its address on the way "
        "to the brokers.",
    ),
    Option(
        "pin.driver.bind.address",
        "pin_bind_address",
        None,
        STREAM,
        text,
        "an address, such as 0.0.0.0",
        "Where the driver listens for them, as spark.driver.bindAddress is to spark.driver.host. "
        "Default: at pin.driver.host.",
    ),
    Option(
        "pin.driver.port",
        "pin_port",
        "0",
        STREAM,
        int_between(0, 65535),
        "a port, or 0 for any",
        "The port of it.",
    ),
    Option(
        "keyRangeListener",
        "key_range_listener",
        None,
        STREAM,
        importable("Class"),
        "package.module:Class",
        "A subclass of keyrange.KeyRangeListener, by the name under which executors import it. In "
        "each executor it is told which key ranges its slot gets and loses, once an assignment, "
        "before their records are read. Who may set it runs any code that executors can import.",
    ),
    Option(
        "splitsPerCore",
        "splits_per_core",
        "1",
        STREAM,
        int_between(1, 64),
        "a number",
        "Into how many pieces the pinned ranges of an executor are cut for each of its cores. More "
        "even out what tasks take; a partition's pieces that are not read at once wait in the "
        "executor's directory, or are fetched again.",
    ),
    Option(
        "memberTable",
        "member_table",
        None,
        STREAM,
        place,
        "an absolute path or a URI",
        "The Delta table that says which member has which key ranges. It is made where there is "
        "none. Default: commitTable with _members behind it. What commitTable.storage says holds "
        "for it too.",
    ),
    Option(
        "memberGroup",
        "member_group",
        None,
        STREAM,
        # The Kafka group is named after it, with a suffix.
        group_up_to(NAME_BYTES_MAX - len(MEMBERS_SUFFIX)),
        "a name",
        f"The members' group; in Kafka it has {MEMBERS_SUFFIX} behind it. Default: commitGroup, "
        "kafka.group.id, or default.",
    ),
    Option(
        "memberNames",
        "member_names",
        "auto",
        STREAM,
        one_of("auto", "static", "dynamic"),
        "auto, static, dynamic",
        "static: every executor has to have a name that survives its restart, or the query fails. "
        "dynamic: names are made up. auto: static where a name is found.",
    ),
    Option(
        "member.name",
        "member_name",
        None,
        STREAM,
        name_up_to(NAME_BYTES_MAX),
        "a name",
        "The name itself, for a query with one executor or a plain consumer.",
    ),
    Option(
        "member.name.env",
        "member_name_env",
        None,
        STREAM,
        _variable,
        "a variable",
        "The variable of the executors that holds the name, and has to be there. Default: "
        "METADATA_NAME, where it is.",
    ),
    Option(
        "member.name.file",
        "member_name_file",
        None,
        STREAM,
        local_path,
        "a path on the executors",
        "A file on a volume that outlives the executor. It holds the name, and is made with a new "
        "one where it is missing.",
    ),
    Option(
        "slot.directory",
        "slot_directory",
        None,
        STREAM,
        local_path,
        "a path on the executors",
        "Where each slot has a directory of its own for caches and state, in one below it that is "
        "the user's alone: a volume's root will do. Default: one of the user's on the host.",
    ),
    Option(
        "registration.timeout.ms",
        "registration_timeout_ms",
        "900000",
        STREAM,
        _ms(),
        _MS,
        "How long a static member may be away before its ranges go to others, from when the first "
        "of those that are away was lost.",
    ),
    Option(
        "expansion.timeout.ms",
        "expansion_timeout_ms",
        "45000",
        STREAM,
        int_between(0, INT32_MAX),
        _MS,
        "How long new members are waited for before ranges move to them, from the first one on.",
    ),
    Option(
        "session.timeout.ms",
        "session_timeout_ms",
        "45000",
        STREAM,
        _ms(),
        _MS,
        "After so long without a heartbeat Kafka holds a member for lost. Within the broker's "
        "group.min.session.timeout.ms and group.max.session.timeout.ms.",
    ),
    Option(
        "heartbeat.interval.ms",
        "heartbeat_interval_ms",
        "3000",
        STREAM,
        _ms(),
        _MS,
        "How often a member says that it is there; at most a third of session.timeout.ms.",
    ),
    Option(
        "max.poll.interval.ms",
        "poll_interval_ms",
        "300000",
        STREAM,
        _ms(),
        _MS,
        "How long a running task may hand over nothing before its member gives up its place. The "
        "larger of it and session.timeout.ms counts. Without a running task nothing is late.",
    ),
)
