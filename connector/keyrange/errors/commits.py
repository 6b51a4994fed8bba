"""The rows of the catalogue about individual commits."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import Condition, Kind

COMMIT_CONDITIONS: Final = (
    # What the order of commits says: commits/model/log.py
    Condition(
        "COMMITS_FENCED",
        Kind.DENIED,
        False,
        "one query has one driver: stop the other one, or give this query a checkpoint and a "
        "commit table of its own",
    ),
    Condition(
        "COMMITS_BEHIND",
        Kind.DATA_LOSS,
        False,
        "the commit table lacks what the checkpoint knows: bring the table back as it was, or "
        "set the positions with `keyrange commits reset`",
    ),
    # What a checkpoint and a commit table say of each other: commits/model/agreement.py
    Condition(
        "COMMITS_AHEAD",
        Kind.INVALID,
        False,
        "the checkpoint lacks what the commit table knows: bring the checkpoint back as it "
        "was; or begin with a new one and commitTable.onFreshStart=resume",
    ),
    Condition(
        "COMMITS_OF_ANOTHER_QUERY",
        Kind.INVALID,
        False,
        "use the checkpoint that these commits belong to; or set commitTable.onFreshStart to "
        "resume, to go on from them with a new one, or to ignore; or name another commitGroup",
    ),
    Condition(
        "COMMIT_TERMS_CHANGED",
        Kind.INVALID,
        False,
        "set the options as they were until everything is done, which `keyrange commits show` "
        "tells, and change them then",
    ),
    Condition(
        "NO_VERDICT",
        Kind.INVALID,
        False,
        "wrap the function of foreachBatch with keyrange.each_batch, and let it say of its "
        "records what is done: keyrange.process, acknowledge or reject, with "
        "commit.isolation=transactional for an empty batch too, which may release what waited; "
        "where it does, bring the commit table back that it wrote to",
    ),
    # What is stored, and where: delta/
    Condition(
        "COMMITS_DAMAGED",
        Kind.CORRUPT,
        False,
        "nothing was read past it: bring the named table back from a copy, or begin anew with "
        "another commitTable and `keyrange commits reset`",
    ),
    Condition(
        "UNSUPPORTED_COMMITS",
        Kind.INVALID,
        False,
        "use the keyrange version that wrote the named table, or a newer one",
    ),
    Condition(
        "FOREIGN_TABLE",
        Kind.INVALID,
        False,
        "name a place of their own in commitTable, deadLetterTable and memberTable, or give the "
        "named table its columns and properties back",
    ),
    Condition(
        "COMMITS_GONE",
        Kind.DATA_LOSS,
        False,
        "bring the named table back as it was, with its _delta_log; no position has moved",
    ),
    Condition(
        "COMMITS_UNREADABLE",
        Kind.UNAVAILABLE,
        True,
        "check that the named table can be reached and read: path, credentials in "
        "commitTable.storage.*, network",
    ),
    Condition(
        "COMMITS_UNWRITABLE",
        Kind.UNAVAILABLE,
        True,
        "make room at the named table, or allow writing there, and start the query again: no "
        "position has moved",
    ),
    # Of the process that works on records and commits them.
    Condition(
        "NOT_MATERIALIZED",
        Kind.INVALID,
        False,
        "call keyrange.materialize(df) first, write to the sink from what it returns, and give "
        "acknowledge and reject rows of that and of nothing else",
    ),
    Condition(
        "IMPLAUSIBLE_VERDICT",
        Kind.INVALID,
        False,
        "acknowledge and reject each record of the batch once, with the topic, partition, "
        "offset and keyHash that it came with",
    ),
    Condition(
        "OUTSIDE_EACH_BATCH",
        Kind.INVALID,
        False,
        "call it in the function given to keyrange.each_batch(function, ...), in the thread "
        "that runs it",
    ),
    Condition(
        "VERDICT_TWICE",
        Kind.INVALID,
        False,
        "call keyrange.process or keyrange.materialize once in a batch, with all that is to be "
        "done; what it returns may be written to many sinks",
    ),
    Condition(
        "VERDICT_TOO_LATE",
        Kind.INVALID,
        False,
        "with commit.isolation=transactional name the column of errors in "
        "keyrange.materialize(df, error_column=...), or let keyrange.process decide",
    ),
    Condition(
        "VERDICT_DAMAGED",
        Kind.CORRUPT,
        False,
        "restore the named files; where they are lost and the sinks take a batch id once only, "
        "remove the batch's directory, and its function runs again",
    ),
    Condition(
        "VERDICT_MISMATCH",
        Kind.INVALID,
        False,
        "the verdict was made for another plan of the batch, as after a checkpoint that was "
        "restored: give the query a verdictDirectory of its own",
    ),
    Condition(
        "VERDICT_UNWRITABLE",
        Kind.UNAVAILABLE,
        True,
        "look at the space and the permissions of verdictDirectory; the batch runs again",
    ),
    Condition(
        "SINK_UNSUITABLE",
        Kind.INVALID,
        False,
        "let Spark write the table: keyrange.process, and what it returns to "
        "df.write.format('delta').options(**keyrange.transaction())",
    ),
    Condition(
        "SINK_UNWRITABLE",
        Kind.UNAVAILABLE,
        True,
        "look at the space and the permissions of the table's place; the batch runs again",
    ),
    Condition(
        "NOT_COMMITTED_INDIVIDUALLY",
        Kind.INVALID,
        False,
        "give each_batch the query's checkpointLocation and the options of its one source with "
        "commitMode=individual",
    ),
    Condition(
        "UNSUITABLE_FRAME",
        Kind.INVALID,
        False,
        "keep the columns topic, partition, offset and keyHash as the batch has them",
    ),
    Condition(
        "RECORDS_OUT_OF_ORDER",
        Kind.INVALID,
        False,
        "give keyrange.process the batch as it is read: filtered or with other columns, but "
        "not repartitioned, sorted, joined or united",
    ),
    Condition(
        "WRONG_RESULT",
        Kind.INVALID,
        False,
        "return None, a row (dict, tuple or Row) or a list of rows, of Arrow batches a "
        "RecordBatch, with the columns of the schema",
    ),
    Condition(
        "NO_ALARM",
        Kind.INVALID,
        False,
        "set record.timeout and batch.time.budget to 0 where Spark's workers run functions in "
        "threads",
    ),
)
