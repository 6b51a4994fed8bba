"""The rows of the catalogue about members, and about the key ranges that they hold."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import Condition, Kind

MEMBER_CONDITIONS: Final = (
    # What a member is told by its group: members/model/group_member.py
    Condition(
        "DUPLICATE_STATIC_MEMBER",
        Kind.DENIED,
        False,
        "give each executor a name of its own: the last one to take a name has it, and who had it "
        "before stops",
    ),
    Condition(
        "NO_STATIC_MEMBER_INFO_SET",
        Kind.INVALID,
        False,
        "say where each executor finds its name (member.name.env, member.name.file), or set "
        "memberNames=dynamic",
    ),
    Condition(
        "SESSION_TIMEOUT_REFUSED",
        Kind.INVALID,
        False,
        "set session.timeout.ms between the brokers' group.min.session.timeout.ms and "
        "group.max.session.timeout.ms, or change these",
    ),
    Condition(
        "MEMBER_REFUSED",
        Kind.INVALID,
        False,
        "use a memberGroup of its own for each query, which nothing else joins, and look the named "
        "Kafka error up",
    ),
    Condition(
        "MEMBER_STALLED",
        Kind.UNAVAILABLE,
        True,
        "look at what the executor's tasks do; where work may take that long, raise "
        "max.poll.interval.ms",
    ),
    # What is stored of an assignment: members/model/assignment.py, membership.py
    Condition(
        "INVALID_ASSIGNMENT",
        Kind.CORRUPT,
        False,
        "nothing was taken from it: bring the named assignment back as it was written, or begin "
        "with another memberTable",
    ),
    # Tasks that ask what they read: spark/binding, members/executor_member.py
    Condition(
        "BINDING_UNREACHABLE",
        Kind.UNAVAILABLE,
        True,
        "let executors reach the driver at the named address (pin.driver.host, pin.driver.port), "
        "or start the query again: where no executor has reached it, it begins unpinned; or set "
        "pin=off",
    ),
    Condition(
        "PIN_REFUSED",
        Kind.UNAVAILABLE,
        True,
        "give every executor a task of each batch: as many free cores as it has members; or raise "
        "pin.wait.ms, or set pin=prefer",
    ),
    Condition(
        "PLAN_FORGOTTEN",
        Kind.INVALID,
        False,
        "use the DataFrame of a batch inside its foreachBatch only",
    ),
    Condition(
        "DYNAMIC_ALLOCATION",
        Kind.INVALID,
        False,
        "set spark.dynamicAllocation.enabled=false, or memberNames=dynamic",
    ),
    Condition(
        "NO_SLOT",
        Kind.INVALID,
        False,
        "call keyrange.slot() inside a task of a query with option pin, from its second batch on",
    ),
    # Option keyRangeListener: members/listening.py
    Condition(
        "KEY_RANGE_LISTENER_NOT_FOUND",
        Kind.INVALID,
        False,
        "install the module where the executors' Python finds it, or correct option "
        "'keyRangeListener': it names a subclass of keyrange.KeyRangeListener that is made without "
        "arguments",
    ),
    Condition(
        "KEY_RANGE_LISTENER_FAILED",
        Kind.INVALID,
        False,
        "read the listener's own error, which stands below, and correct the listener: it is told "
        "the same again",
    ),
    # What is stored of the members, and where: members/table/assignments.py
    Condition(
        "ASSIGNMENT_CHANGED",
        Kind.DENIED,
        False,
        "one query has one driver: stop the other one, or give this query a memberTable of its own",
    ),
    Condition(
        "ASSIGNMENT_DAMAGED",
        Kind.CORRUPT,
        False,
        "nothing was read past it: bring the named table back from a copy, or name another "
        "memberTable and the key ranges are assigned anew; no position depends on it",
    ),
    Condition(
        "ASSIGNMENT_GONE",
        Kind.DATA_LOSS,
        False,
        "bring the named table back as it was, with its _delta_log, or start the query again "
        "and the key ranges are assigned from what is there; no position depends on it",
    ),
    Condition(
        "UNSUPPORTED_ASSIGNMENT",
        Kind.INVALID,
        False,
        "use the keyrange version that wrote the named table, or a newer one",
    ),
    Condition(
        "ASSIGNMENT_UNREADABLE",
        Kind.UNAVAILABLE,
        True,
        "check that the named table can be reached and read: path, credentials in "
        "commitTable.storage.*, network",
    ),
    Condition(
        "ASSIGNMENT_UNWRITABLE",
        Kind.UNAVAILABLE,
        True,
        "make room at the named table, or allow writing there, and start the query again: the "
        "key ranges stay where they were",
    ),
    # Where a member's name is from, and the process that holds it: members/
    Condition(
        "INVALID_MEMBER_NAME",
        Kind.INVALID,
        False,
        "name members with letters, digits, '.', '_' and '-', 249 of them at the most",
    ),
    Condition(
        "MEMBER_NOT_STARTED",
        Kind.UNAVAILABLE,
        True,
        "read member.log beside the named cause; where an executor may start no process, set "
        "pin=off",
    ),
)
