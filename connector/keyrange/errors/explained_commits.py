"""What the conditions about individual commits and of the plain consumer mean."""

from __future__ import annotations

from typing import Final

from keyrange.errors.explanation import Explanation

_COMMITS = "individual-commits.md"
_ON_CALL = "on-call.md"
_CONSUMER = "consumer.md"

COMMIT_EXPLANATIONS: Final = {
    "COMMITS_FENCED": Explanation(
        "Another driver of the query, or somebody who reset its commits, has written since. This "
        "one stops and commits nothing more.",
        "`keyrange commits history TABLE`: the newest lines say who, and why",
        _ON_CALL,
    ),
    "COMMITS_BEHIND": Explanation(
        "The checkpoint knows of commits that the commit table does not have: the table was "
        "restored or replaced.",
        "`keyrange commits history TABLE` beside `keyrange checkpoint show LOCATION`",
        _COMMITS,
    ),
    "COMMITS_AHEAD": Explanation(
        "The commit table knows of batches that the checkpoint does not have: the checkpoint was "
        "restored or replaced.",
        "`keyrange commits history TABLE` beside `keyrange checkpoint show LOCATION`",
        _COMMITS,
    ),
    "COMMITS_OF_ANOTHER_QUERY": Explanation(
        "The query has no checkpoint yet, and the group of the commit table has commits already.",
        "`keyrange commits show TABLE`: the query and group that wrote them",
        _COMMITS,
    ),
    "COMMIT_TERMS_CHANGED": Explanation(
        "An option by which records are committed was changed while some are not done. They would "
        "be judged by another rule, or never come again.",
        "`keyrange commits gaps TABLE`",
        _COMMITS,
    ),
    "NO_VERDICT": Explanation(
        "A batch ended and nobody said which of its records are done. Nothing of it was committed.",
        "the function given to foreachBatch",
        _COMMITS,
    ),
    "COMMITS_DAMAGED": Explanation(
        "What is stored in the commit table or the dead letters contradicts itself. Nothing was "
        "read past it, and no position has moved.",
        "the table and commit in the message; `keyrange commits verify TABLE`",
        _ON_CALL,
    ),
    "UNSUPPORTED_COMMITS": Explanation(
        "The table was written by a version of keyrange, or with a feature of Delta, that is not "
        "known here.",
        "`keyrange --version`, here and where the table is written",
    ),
    "FOREIGN_TABLE": Explanation(
        "At the place that was named is a table, or are files, that are none of keyrange's.",
        "the path in the message: it is not the sink, and not the dead letters",
        _COMMITS,
    ),
    "COMMITS_GONE": Explanation(
        "The table was deleted, or its log is not complete.",
        "the path in the message, and its directory _delta_log",
        _ON_CALL,
    ),
    "COMMITS_UNREADABLE": Explanation(
        "The table could not be reached or read.",
        "the path in the message, from the driver's host, and commitTable.storage.*",
        _COMMITS,
    ),
    "COMMITS_UNWRITABLE": Explanation(
        "A commit could not be written. The batch runs again when the query is started again; its "
        "function does not, as its verdict is kept.",
        "space and permissions at the path in the message",
        _COMMITS,
    ),
    "NOT_MATERIALIZED": Explanation(
        "`acknowledge` or `reject` was given other rows than `materialize` returned.",
        "how the DataFrame came about",
        _COMMITS,
    ),
    "IMPLAUSIBLE_VERDICT": Explanation(
        "What was said of the records cannot be: one is acknowledged twice, or is of no batch.",
        "the partition and reason in the message: a join that doubled rows, for example",
        _COMMITS,
    ),
    "OUTSIDE_EACH_BATCH": Explanation(
        "A function that belongs to a batch was called where no batch runs.",
        "the stack of the error: another thread, or a call outside foreachBatch",
        _COMMITS,
    ),
    "VERDICT_TWICE": Explanation(
        "A batch was given to `process` or `materialize` a second time.",
        "the function given to foreachBatch",
        _COMMITS,
    ),
    "VERDICT_TOO_LATE": Explanation(
        "With commit.isolation=transactional what is done has to be known before output is "
        "released, and something was said after that.",
        "the order of the calls in the function given to foreachBatch",
        _COMMITS,
    ),
    "VERDICT_DAMAGED": Explanation(
        "The kept result of a batch cannot be read, or files that it counts on are gone.",
        "the files in the message; who removes files there: a lifecycle rule, a VACUUM",
        _COMMITS,
    ),
    "VERDICT_MISMATCH": Explanation(
        "The kept result is one of another plan of the same batch number.",
        "whether the checkpoint was restored, or two queries share a verdictDirectory",
        _COMMITS,
    ),
    "VERDICT_UNWRITABLE": Explanation(
        "The result of a batch could not be kept. Nothing was written to the sink.",
        "space and permissions at the path in the message",
        _COMMITS,
    ),
    "SINK_UNSUITABLE": Explanation(
        "`process_into` writes files of a Delta table, and this table does not take them: it has "
        "partition columns, constraints, generated columns or features that files do not keep to.",
        "the reason in the message",
        _COMMITS,
    ),
    "SINK_UNWRITABLE": Explanation(
        "Output could not be added to the table. The batch runs again, its function does not.",
        "space and permissions at the path in the message",
        _COMMITS,
    ),
    "NOT_COMMITTED_INDIVIDUALLY": Explanation(
        "`each_batch` was given a query that does not commit individually, or has several sources "
        "that do.",
        "the options of `each_batch` beside those of `load`",
        _COMMITS,
    ),
    "UNSUITABLE_FRAME": Explanation(
        "A DataFrame has lost a column by which its records are known, or has one that is "
        "keyrange's own.",
        "the column in the message",
        _COMMITS,
    ),
    "RECORDS_OUT_OF_ORDER": Explanation(
        "Rows were shuffled between the source and `process`, so the order of a key is lost.",
        "repartition, sort, join or union in front of `process`",
        _COMMITS,
    ),
    "WRONG_RESULT": Explanation(
        "The function given to `process` returned something that is no row of the schema.",
        "what the message says it returned",
        _COMMITS,
    ),
    "NO_ALARM": Explanation(
        "`record.timeout` needs a signal, which only the main thread of a process receives.",
        "how the cluster runs Python workers",
        _COMMITS,
    ),
}

CONSUMER_EXPLANATIONS: Final = {
    "RANGES_LOST": Explanation(
        "Another consumer of the group has taken over key ranges that this one had. What it did "
        "not commit is handed out there.",
        "`keyrange members history TABLE_members`: it polled too rarely, or a name is used twice",
        _CONSUMER,
    ),
    "NOT_DELIVERED": Explanation(
        "Offsets were acknowledged that this consumer was not handed out.",
        "the offsets in the message; a range may have moved meanwhile",
        _CONSUMER,
    ),
    "GAP_TIMED_OUT": Explanation(
        "A record was handed out `maxDeliveries` times and never acknowledged. Nothing behind it "
        "of its key goes on.",
        "the offsets in the message; `keyrange records --offset TOPIC-PARTITION:OFFSET` shows one",
        _CONSUMER,
    ),
    "INVALID_KEY_RANGES": Explanation(
        "`assign` was given ranges that overlap, or lie outside of [0, 2^63 - 1].",
        "the partition in the message",
        _CONSUMER,
    ),
    "CONSUMER_STATE": Explanation(
        "A method was called that does not fit what was called before, or from another thread.",
        "the method in the message",
        _CONSUMER,
    ),
}
