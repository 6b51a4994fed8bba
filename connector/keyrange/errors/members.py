"""The rows of the catalogue about members and consumers, and the key ranges that they hold."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import ON_S3, Rows

_rows = Rows("static-members.md")
_consumer = Rows("consumer.md")

MEMBER_CONDITIONS: Final = (
    # What a member is told by its group: members/model/group_member.py
    _rows.denied(
        "DUPLICATE_STATIC_MEMBER",
        "give each executor a name of its own: a member that takes a name stops the member that "
        "had it",
        "Another executor has joined the group with this executor's name. Kafka keeps the later "
        "one, and this executor reads nothing more.",
        "`keyrange members list TABLE --live`: host and executor that have the name",
    ),
    _rows.invalid(
        "NO_STATIC_MEMBER_INFO_SET",
        "say where each executor finds its name (member.name.env, member.name.file), or set "
        "memberNames=dynamic",
        "memberNames=static, and an executor found no name that survives it.",
        "where names come from on your cluster manager",
    ),
    _rows.invalid(
        "SESSION_TIMEOUT_REFUSED",
        "set session.timeout.ms between the brokers' group.min.session.timeout.ms and "
        "group.max.session.timeout.ms, or change these",
        "The brokers do not allow this `session.timeout.ms`.",
        "group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers",
    ),
    _rows.invalid(
        "MEMBER_REFUSED",
        "use a memberGroup of its own for each query, which nothing else joins, and look the named "
        "Kafka error up",
        "The group's coordinator refused the member for good.",
        "Kafka's error in the message: a group of another type, or a principal without READ on it",
    ),
    _rows.unavailable(
        "MEMBER_STALLED",
        "look at the work of the executor's tasks; if one record may take that long, raise "
        "max.poll.interval.ms",
        "A member made no progress for `max.poll.interval.ms` and left the group.",
        "the executor's thread dump in Spark's web page, which shows the work of its tasks",
    ),
    # What is stored of an assignment: members/model/assignment.py, reassignment_timing.py
    _rows.corrupt(
        "INVALID_ASSIGNMENT",
        "nothing was taken from it: bring the named assignment back as it was written, or begin "
        "with another memberTable",
        "A stored assignment contradicts itself. Nothing was taken from it.",
        "the row in the message",
    ),
    # Tasks that ask what they read: members/binding/, members/executor_member.py
    _rows.unavailable(
        "BINDING_UNREACHABLE",
        "let executors reach the driver at the named address (pin.driver.host, pin.driver.port), "
        "or start the query again: where no executor has reached it, it begins unpinned; or set "
        "pin=off",
        "A task could not ask the driver which key ranges it reads. It fails, because the "
        "driver may have given them to another task.",
        "whether the named address can be reached from the executor's host",
    ),
    _rows.unavailable(
        "PIN_REFUSED",
        "give every executor a task of each batch: as many free cores as it has members; or raise "
        "pin.wait.ms, or set pin=prefer",
        "With pin=strict a batch got no task on an executor that owns key ranges of it. Spark "
        "tries the task again, spark.task.maxFailures times in all.",
        "`keyrange members list TABLE`: members without a free core",
    ),
    _rows.invalid(
        "PLAN_FORGOTTEN",
        "use the DataFrame of a batch inside its foreachBatch only",
        "A DataFrame of a batch was used after many other batches had come.",
        "where the DataFrame is kept beyond its foreachBatch",
    ),
    _rows.invalid(
        "DYNAMIC_ALLOCATION",
        "set spark.dynamicAllocation.enabled=false, or memberNames=dynamic",
        "memberNames=static, and Spark may take executors away: their ranges would wait.",
        "spark.dynamicAllocation.enabled",
    ),
    _rows.invalid(
        "NO_SLOT",
        "call keyrange.slot() inside a task of a query with option pin, from its second batch on",
        "`keyrange.slot()` was called where there is none: outside a task, in the first batch of a "
        "run, or in a query without `pin`.",
        "whether the query's options have `pin`, and whether a batch was bound yet",
    ),
    # Option keyRangeListener: members/range_listener_calls.py
    _rows.invalid(
        "KEY_RANGE_LISTENER_NOT_FOUND",
        "install the module where the executors' Python finds it, or correct option "
        "'keyRangeListener': it names a subclass of keyrange.KeyRangeListener that is made without "
        "arguments",
        "An executor could not import or make the listener that `keyRangeListener` names.",
        "the import error in the message",
    ),
    _rows.invalid(
        "KEY_RANGE_LISTENER_FAILED",
        "correct the listener by its own error, which follows; keyrange calls it again with the "
        "same change",
        "The listener raised an error. Its task fails, and keyrange calls the listener again "
        "with the same change.",
        "the listener's traceback, below the message",
    ),
    # What is stored of the members, and where: members/table/assignments.py
    _rows.denied(
        "ASSIGNMENT_CHANGED",
        "one query has one driver: stop the other one, or give this query a memberTable of its own",
        "Another driver writes the table of members. This one stops.",
        "`keyrange members history TABLE`",
    ),
    _rows.corrupt(
        "ASSIGNMENT_DAMAGED",
        "nothing was read past it: bring the named table back from a copy, or name another "
        "memberTable and the key ranges are assigned anew; no position depends on it",
        "A row of the table of members contradicts itself. No position depends on it.",
        "the row in the message",
    ),
    _rows.data_loss(
        "ASSIGNMENT_GONE",
        "restore the named table with its _delta_log, or start the query again: the driver then "
        "assigns the key ranges to the members that are there; no position depends on the table",
        "The table of members was deleted, or rows of it are gone. No position depends on it.",
        "the path in the message",
    ),
    _rows.invalid(
        "UNSUPPORTED_ASSIGNMENT",
        "use the keyrange version that wrote the named table, or a newer one",
        "The table of members was written by a newer version.",
        "`keyrange --version`, here and where the table is written",
        guide="",
    ),
    _rows.unavailable(
        "ASSIGNMENT_UNREADABLE",
        f"check that the named table can be reached and read: path, credentials ({ON_S3}), network",
        "The table of members could not be reached or read.",
        "the path in the message, from the driver's host",
    ),
    _rows.unavailable(
        "ASSIGNMENT_UNWRITABLE",
        f"make room at the named table, or allow writing there ({ON_S3}), and start the query "
        "again: the key ranges stay where they were",
        "The table of members could not be written. Key ranges stay where they were.",
        "space and permissions at the path in the message",
    ),
    # Where a member's name is from, and the process that holds it: members/
    _rows.invalid(
        "INVALID_MEMBER_NAME",
        "name members with letters, digits, '.', '_' and '-', 249 of them at the most",
        "A member's name has characters that Kafka does not take in a name.",
        "the source of the name, which the message has",
    ),
    _rows.unavailable(
        "MEMBER_NOT_STARTED",
        "read member.log beside the named cause; where an executor may start no process, set "
        "pin=off",
        "The small process that holds an executor's name did not start, or ended.",
        "member.log, in the directory that the message names",
    ),
    # The plain consumer: consumer/
    _consumer.denied(
        "RANGES_LOST",
        "another consumer of the group has these key ranges: give each consumer ranges of its own, "
        "or call assign or subscribe again to take part",
        "Another consumer of the group has taken over key ranges of this consumer, and receives "
        "the records that this consumer had not committed. At the end of a transaction: this "
        "consumer was not told whether it is committed. The next consumer of the ranges learns it: "
        "output and acknowledgements count both, or neither.",
        "`keyrange members history TABLE_members`: it polled too rarely, or a name is used twice",
    ),
    _consumer.denied(
        "MEMBERSHIP_ENDED",
        "close this consumer, and start it again once the cause is mended: give each consumer a "
        "member.name of its own",
        "Another consumer has joined the group under this one's static name, or the group has "
        "refused this one. It has no key ranges, and does not get any again.",
        "the cause in the message; `keyrange members history TABLE_members`",
    ),
    _consumer.invalid(
        "INVALID_OFFSET",
        "name offsets by whole numbers from 0 on, as records have them; `acknowledge` takes "
        "batches and records that poll returned, or a topic-partition with offsets",
        "`acknowledge` or `seek` was given an offset that is no whole number, or something else "
        "than records.",
        "the value in the message",
    ),
    _consumer.invalid(
        "NOT_DELIVERED",
        "acknowledge only records that poll returned, of key ranges that this consumer owns",
        "The program acknowledged offsets that this consumer has not returned.",
        "the offsets in the message; a range may have moved since poll returned them",
    ),
    _consumer.invalid(
        "SEEK_REFUSED",
        "seek between committed(partition) and the end of the log; to read committed records once "
        "more, take another commitGroup with startingOffsets",
        "`seek` was given an offset below which the group has committed records, which are never "
        "handed out again, or one behind the end of the log.",
        "the partition and the offsets in the message",
    ),
    _consumer.invalid(
        "GAP_TIMED_OUT",
        "acknowledge the named records to leave them out, raise maxDeliveries or gap.timeout.ms, "
        "or take them with a listener's on_deliveries_spent",
        "The consumer has returned a record `maxDeliveries` times, and nobody has acknowledged "
        "it. Later records of its key wait.",
        "the offsets in the message; `keyrange records --offset TOPIC-PARTITION:OFFSET` shows one",
    ),
    _consumer.invalid(
        "TRANSACTION_FORGOTTEN",
        "look whether the output of the consumer's last records is in its topics, with "
        "isolation.level=read_committed; then start one consumer once with if.forgotten=send if it "
        "is not, which hands the records out again, or with if.forgotten=skip if it is, which "
        "takes them as done",
        "A consumer ended at the end of a transaction, and Kafka does not know any more whether it "
        "is committed: Kafka forgets a group's offsets after offsets.retention.minutes, and where "
        "somebody deletes the group or the topic. No consumer receives the key ranges.",
        "the group in the message: `kafka-consumer-groups --describe --group GROUP`; the producers "
        "of all consumers of a group have to be on one cluster",
    ),
    _consumer.invalid(
        "INVALID_KEY_RANGES",
        "give assign a dict from (topic, partition) to pairs (lo, hi), both included, that do not "
        "overlap; an empty list is the whole partition",
        "`assign` was given ranges that overlap, or lie outside of [0, 2^63 - 1].",
        "the partition in the message",
    ),
    _consumer.invalid(
        "CONSUMER_STATE",
        "call assign or subscribe, one of them, before poll, unsubscribe in between, and nothing "
        "after close; pause, position and seek are for partitions in assignment(); within a "
        "transaction call poll, acknowledge and send",
        "A method was called in the wrong order, with arguments that do not go together, or from "
        "another thread.",
        "the method in the message",
    ),
)
