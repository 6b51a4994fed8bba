"""What the conditions about members and about the volume guard mean."""

from __future__ import annotations

from typing import Final

from keyrange.errors.explanation import Explanation

_MEMBERS = "static-members.md"
_VOLUMES = "volume-guard.md"

MEMBER_EXPLANATIONS: Final = {
    "DUPLICATE_STATIC_MEMBER": Explanation(
        "Another executor has taken this one's name. The last one to take it has it, and this one "
        "reads nothing more.",
        "`keyrange members list TABLE --live`: host and executor that have the name",
        _MEMBERS,
    ),
    "NO_STATIC_MEMBER_INFO_SET": Explanation(
        "memberNames=static, and an executor found no name that survives it.",
        "where names come from on your cluster manager",
        _MEMBERS,
    ),
    "SESSION_TIMEOUT_REFUSED": Explanation(
        "The brokers do not allow this `session.timeout.ms`.",
        "group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers",
        _MEMBERS,
    ),
    "MEMBER_REFUSED": Explanation(
        "The group's coordinator refused the member for good.",
        "Kafka's error in the message: a group of another type, or a principal without READ on it",
        _MEMBERS,
    ),
    "MEMBER_STALLED": Explanation(
        "A member made no progress for `max.poll.interval.ms` and gave its place up.",
        "what the executor's tasks do: its thread dump in Spark's web page",
        _MEMBERS,
    ),
    "INVALID_ASSIGNMENT": Explanation(
        "A stored assignment contradicts itself. Nothing was taken from it.",
        "the row in the message",
        _MEMBERS,
    ),
    "BINDING_UNREACHABLE": Explanation(
        "A task could not ask the driver which key ranges it reads. It fails rather than read what "
        "others may have been given.",
        "whether the named address can be reached from the executor's host",
        _MEMBERS,
    ),
    "PIN_REFUSED": Explanation(
        "With pin=strict a batch got no task on an executor that owns key ranges of it. Spark "
        "tries the batch again.",
        "`keyrange members list TABLE`: members without a free core",
        _MEMBERS,
    ),
    "PLAN_FORGOTTEN": Explanation(
        "A DataFrame of a batch was used after many other batches had come.",
        "where the DataFrame is kept beyond its foreachBatch",
        _MEMBERS,
    ),
    "DYNAMIC_ALLOCATION": Explanation(
        "memberNames=static, and Spark may take executors away: their ranges would wait.",
        "spark.dynamicAllocation.enabled",
        _MEMBERS,
    ),
    "NO_SLOT": Explanation(
        "`keyrange.slot()` was called where there is none: outside a task, in the first batch of a "
        "run, or in a query without `pin`.",
        "whether the query's options have `pin`, and whether a batch was bound yet",
        _MEMBERS,
    ),
    "KEY_RANGE_LISTENER_NOT_FOUND": Explanation(
        "An executor could not import or make the listener that `keyRangeListener` names.",
        "the import error in the message",
        _MEMBERS,
    ),
    "KEY_RANGE_LISTENER_FAILED": Explanation(
        "The listener raised an error. Its task fails, and it is told the same again.",
        "the listener's traceback, below the message",
        _MEMBERS,
    ),
    "ASSIGNMENT_CHANGED": Explanation(
        "Another driver writes the table of members. This one stops.",
        "`keyrange members history TABLE`",
        _MEMBERS,
    ),
    "ASSIGNMENT_DAMAGED": Explanation(
        "A row of the table of members contradicts itself. No position depends on it.",
        "the row in the message",
        _MEMBERS,
    ),
    "ASSIGNMENT_GONE": Explanation(
        "The table of members was deleted, or rows of it are gone. No position depends on it.",
        "the path in the message",
        _MEMBERS,
    ),
    "UNSUPPORTED_ASSIGNMENT": Explanation(
        "The table of members was written by a newer version.",
        "`keyrange --version`, here and where the table is written",
    ),
    "ASSIGNMENT_UNREADABLE": Explanation(
        "The table of members could not be reached or read.",
        "the path in the message, from the driver's host",
        _MEMBERS,
    ),
    "ASSIGNMENT_UNWRITABLE": Explanation(
        "The table of members could not be written. Key ranges stay where they were.",
        "space and permissions at the path in the message",
        _MEMBERS,
    ),
    "INVALID_MEMBER_NAME": Explanation(
        "A member's name has characters that Kafka does not take in a name.",
        "the source of the name, which the message has",
        _MEMBERS,
    ),
    "MEMBER_NOT_STARTED": Explanation(
        "The small process that holds an executor's name did not start, or ended.",
        "member.log, in the directory that the message names",
        _MEMBERS,
    ),
}

VOLUME_EXPLANATIONS: Final = {
    "THROTTLE_FACTOR_UNREADABLE": Explanation(
        "`throttle.factor.file` holds no number from 0 to 1, or a source of others fails or says "
        "something else. The last factor holds for throttle.factor.validity.duration, then "
        "the fallback.",
        "the file or the source, where the query is planned",
        _VOLUMES,
    ),
    "QUOTA_UNREADABLE": Explanation(
        "`quota.file` holds no number of bytes, or a source of others says none, so nothing says "
        "from which rate producers are slowed.",
        "the file or the source, where the guard runs",
        _VOLUMES,
    ),
    "QUOTAS_REFUSED": Explanation(
        "The cluster refused a change of client quotas.",
        "Kafka's error in the message; `keyrange volumes release` shows what is held",
        _VOLUMES,
    ),
    "QUOTAS_UNAVAILABLE": Explanation(
        "The cluster has no controller that takes changes of client quotas at the moment.",
        "the brokers' health; the guard tries again by itself",
        _VOLUMES,
    ),
}
