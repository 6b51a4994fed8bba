"""The rows of the catalogue about individual commits."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import ON_S3, Rows

_rows = Rows("individual-commits.md")
_on_call = Rows("on-call.md")
_table_jobs = Rows("table-jobs.md")

COMMIT_CONDITIONS: Final = (
    # What the order of commits says: individual_commits/model/commit.py
    _on_call.denied(
        "COMMITS_FENCED",
        "one query has one driver: stop the other one; queries that are not the same need a "
        "checkpoint and a commit table each; after `keyrange commits reset` or `deadletters "
        "replay`, start the query again",
        "Another driver of the query, or a reset of its commits, has written to the commit "
        "table since. This driver stops and commits nothing more.",
        "`keyrange commits history TABLE`: the newest lines name the writer and its reason",
    ),
    _rows.data_loss(
        "COMMITS_BEHIND",
        "restore the commit table; where it is lost, or the last batch ran without "
        "`keyrange.each_batch`, begin with a new checkpoint and commitTable.onFreshStart=resume, "
        "which delivers again all that the commit table does not call done: a sink that has some "
        "of it has it twice then",
        "The checkpoint knows of batches that the commit table does not have: the table was "
        "restored or replaced, or the last batch ran without `keyrange.each_batch`.",
        "`keyrange commits history TABLE` beside `keyrange checkpoint show LOCATION`",
    ),
    # What checkpoint and commit table say of each other: state_before_batch.py
    _rows.invalid(
        "COMMITS_AHEAD",
        "where another driver runs this query, leave one of them running; else the checkpoint "
        "lacks batches that the commit table has: restore the checkpoint, or begin with a new one "
        "and commitTable.onFreshStart=resume, which goes on where the commits end, so that nothing "
        "is left out",
        "The commit table knows of batches that the checkpoint does not have, or did not have when "
        "this driver began: another driver of the query goes on, or the checkpoint was restored or "
        "replaced.",
        "`keyrange commits history TABLE` beside `keyrange checkpoint show LOCATION`",
    ),
    _rows.invalid(
        "COMMITS_OF_ANOTHER_QUERY",
        "use the checkpoint that these commits belong to; where it is lost, set "
        "commitTable.onFreshStart=resume, with which a new one goes on where they end, and nothing "
        "is lost or done twice. Another query, or one that has committed whole batches so far, "
        "needs another commitGroup. onFreshStart=ignore gives the commits up: what they call done "
        "is delivered again from startingOffsets on, and a sink has it twice; what is pending "
        "below is never delivered; the state of keys is lost",
        "The group of the commit table has commits already, and the checkpoint of the query is new "
        "or knows nothing of them: it was lost, or the commits are those of another query. Nothing "
        "was read.",
        "`keyrange commits show TABLE`: the query and group that wrote them",
    ),
    _rows.invalid(
        "UNCOMMITTED_OUTPUT",
        "run the query that wrote it once more with its own checkpoint and verdictDirectory, which "
        "finishes the batch; or where one of them is lost delete the batch's rows from the table, "
        "say that they are gone with `keyrange commits reset --redo --to` its first offset, and "
        "begin with a new checkpoint: its records come again",
        "A query with a new checkpoint takes up the commits of another one, whose driver ended, or "
        "was stopped, between writing the output of its last batch and committing it. The records "
        "of that batch would be in the table twice. Or a batch runs again without the verdict by "
        "which the table has it: other records of it may be done this time.",
        "`keyrange commits show TABLE`, and the batch in the log of the table, under "
        "`keyrange.batchId`",
    ),
    _rows.invalid(
        "COMMIT_TERMS_CHANGED",
        "keep the options as they were until `keyrange commits show` lists no pending record, "
        "and change them then",
        "An option by which records are committed was changed while some are not done. They would "
        "be judged by another rule, or never come again.",
        "`keyrange commits gaps TABLE`",
    ),
    _table_jobs.invalid(
        "BATCH_UNFINISHED",
        "start the query once more as it was, with trigger(availableNow=True), and let it end; "
        "then change it",
        "The last batch began in another way and is not finished: in another commitMode, with "
        "another writer, table or schema, or with another option that its stored result rests on. "
        "Finished in this way it would be written twice or in part.",
        "`keyrange checkpoint show LOCATION`: a batch that is planned and not committed",
    ),
    _rows.data_loss(
        "COMMITS_MISSING",
        "name the commit table that the query has written to, or bring it back. Where it is lost, "
        "begin with a new checkpoint and the startingOffsets that `keyrange checkpoint export "
        "LOCATION` prints: records below them that were not done are left out. So too where the "
        "function of foreachBatch was not wrapped with keyrange.each_batch: wrap it; from earlier "
        "offsets its sink gets what it has again",
        "Spark has finished a batch of the query, and the commit table has no commit of the "
        "query at all: it was deleted, it is another one, or the function of foreachBatch does "
        "not write to it.",
        "`keyrange commits history TABLE` beside `keyrange checkpoint show LOCATION`",
    ),
    _rows.invalid(
        "NO_VERDICT",
        "wrap the function of foreachBatch with keyrange.each_batch, and let it say of its "
        "records what is done: keyrange.process, acknowledge or reject, with "
        "commit.isolation=transactional for an empty batch too, which may release what waited",
        "A batch ended without a report of which records are done. The driver committed nothing "
        "of it.",
        "the function given to foreachBatch",
    ),
    # What is stored, and where: delta/
    _on_call.corrupt(
        "COMMITS_DAMAGED",
        "nothing was read past it: bring the named table back from a copy. Without one begin with "
        "a new checkpoint, another commitTable and the startingOffsets that `keyrange checkpoint "
        "export LOCATION` prints: records below them that were not done are left out",
        "Rows of the commit table or of the dead letters contradict each other or their checksum. "
        "keyrange read nothing past them and moved no position.",
        "the table and commit in the message; `keyrange commits verify TABLE`",
    ),
    _rows.invalid(
        "UNSUPPORTED_COMMITS",
        "use the keyrange version that wrote the named table, or a newer one",
        "The table was written by a version of keyrange, or with a feature of Delta, that is not "
        "known here.",
        "`keyrange --version`, here and where the table is written",
        guide="",
    ),
    _rows.invalid(
        "FOREIGN_TABLE",
        "to look at a table, name the path that the query's option commitTable or memberTable has; "
        "in a query, give each of commitTable, deadLetterTable and memberTable a path of its own, "
        "or restore the columns and properties of the named table",
        "The path that was named holds a table or files that keyrange has not made.",
        "the path in the message: it is not the sink, and not the dead letters",
    ),
    _rows.invalid(
        "NO_COMMIT_TABLE",
        "name the path or URI that the query's option commitTable has; a query makes the table in "
        "its first run",
        "There is no table of commits at the path that was named. A query with "
        "commitMode=individual has one; one that commits whole batches has none.",
        "the path in the message, beside the query's options",
    ),
    _on_call.data_loss(
        "COMMITS_GONE",
        "bring the named table back as it was, with its _delta_log; no position has moved",
        "The table was deleted, or its log is not complete.",
        "the path in the message, and its directory _delta_log",
    ),
    _rows.unavailable(
        "COMMITS_UNREADABLE",
        f"check that the named table can be reached and read: path, credentials ({ON_S3}), network",
        "The table could not be reached or read.",
        "the path in the message, from the driver's host; AWS_* there and objectStore.*",
    ),
    _rows.unavailable(
        "COMMITS_UNWRITABLE",
        f"make room at the named table, or allow writing there ({ON_S3}), and start the query "
        "again: no position has moved",
        "A commit could not be written. The batch runs again when the query is started again; its "
        "function does not, as its verdict is kept.",
        "space and permissions at the path in the message",
    ),
    # Of the process that works on records and commits them.
    _rows.invalid(
        "NOT_MATERIALIZED",
        "call keyrange.materialize(df) first, write its result to the sink, and give "
        "acknowledge and reject rows of that result only, and not cached: it is kept already",
        "`acknowledge` or `reject` was given other rows than `materialize` returned, or rows of a "
        "DataFrame that is cached, of which Spark does not say where they are from.",
        "how the DataFrame came about",
    ),
    _rows.invalid(
        "IMPLAUSIBLE_VERDICT",
        "acknowledge and reject each record of the batch once, with the topic, partition, "
        "offset and keyHash that it came with",
        "The reported results contradict each other: a record is acknowledged twice, or belongs "
        "to no batch.",
        "the partition and reason in the message: a join that doubled rows, for example",
    ),
    _rows.invalid(
        "OUTSIDE_EACH_BATCH",
        "call it in the function given to keyrange.each_batch(function, ...), in the thread "
        "that runs it",
        "A function that belongs to a batch was called where no batch runs.",
        "the stack of the error: another thread, or a call outside foreachBatch",
    ),
    _rows.invalid(
        "VERDICT_TWICE",
        "call keyrange.process or keyrange.materialize once in a batch, for all of its records; "
        "the result may be written to several sinks",
        "A batch was given to `process` or `materialize` a second time.",
        "the function given to foreachBatch",
    ),
    _rows.invalid(
        "VERDICT_TOO_LATE",
        "with commit.isolation=transactional name the column of errors in "
        "keyrange.materialize(df, error_column=...), or let keyrange.process decide",
        "With commit.isolation=transactional all results have to be reported before output is "
        "released, and one was reported after that.",
        "the order of the calls in the function given to foreachBatch",
    ),
    _rows.corrupt(
        "VERDICT_DAMAGED",
        "restore the named files; where they are lost and no sink has the batch yet, remove the "
        "batch's directory, and its function runs again; where one has it, remove the batch's rows "
        "there and begin with a new checkpoint and commitTable.onFreshStart=resume: its records "
        "come again",
        "The kept result of a batch cannot be read, or files that it counts on are gone.",
        "the files in the message; whether a lifecycle rule or a VACUUM removes files there",
    ),
    _rows.invalid(
        "VERDICT_MISMATCH",
        "restore checkpoint, commit table and verdicts from the same stop of the query; without "
        "such copies begin with a new checkpoint and commitTable.onFreshStart=resume, which "
        "delivers again what the commits do not call done: a sink may have it twice then. A sink "
        "that takes a batch id once would pass over other records of this batch in silence",
        "The kept result is one of another plan of the same batch number.",
        "whether the checkpoint was restored, or two queries share a verdictDirectory",
    ),
    _rows.unavailable(
        "VERDICT_UNREADABLE",
        f"check that verdictDirectory can be reached and read from driver and executors ({ON_S3}, "
        "network; elsewhere: permissions); the batch runs again",
        "The store that holds the result of a batch did not answer, or refused.",
        "the path in the message, and the store's own answer behind it",
    ),
    _rows.unavailable(
        "VERDICT_UNWRITABLE",
        f"look at the space and the permissions of verdictDirectory ({ON_S3}); the batch runs "
        "again",
        "The result of a batch could not be kept. Nothing was written to the sink.",
        "space and permissions at the path in the message",
    ),
    _table_jobs.invalid(
        "SINK_UNSUITABLE",
        "add the columns that the table lacks with into(..., evolve='add') or with ALTER TABLE ... "
        "ADD COLUMNS, or give the job the table's own columns and partition columns; for a table "
        "with constraints or with features of Delta start the query in a session that has Delta, "
        "which then writes the table",
        "The table does not take the rows of `keyrange.job`: it has other columns or partition "
        "columns, or constraints, generated columns or features to which files do not keep, and "
        "the session has no Delta.",
        "the reason in the message",
    ),
    _table_jobs.invalid(
        "SINK_TYPES_DIFFER",
        "give the job's column the type that the table has, in the function and its schema or in "
        "valueSchema, or another name, under which into(..., evolve='add') adds it. To keep the "
        "type, write to another table, with a new checkpoint, and with individual commits another "
        "commitTable too: that table gets what the topic still has from startingOffsets on",
        "The table of a `keyrange.job` has a column of another type than the job's rows. keyrange "
        "casts no values, and evolve='add' widens types in a table with type widening alone. "
        "Nothing was written.",
        "the column and both types in the message; `DESCRIBE TABLE`",
    ),
    _table_jobs.invalid(
        "ROWS_REFUSED",
        "let the function answer with rows that keep to the rule. This batch is worked on already: "
        "drop the rule (ALTER TABLE ... DROP CONSTRAINT, or ALTER COLUMN ... DROP NOT NULL), start "
        "the query, which then writes the batch, and mend the rows before you add it again",
        "The session's Delta, which writes this table, holds rows to the table's rules, and a row "
        "of the batch breaks one. Nothing of the batch was written to the table.",
        "the rule, the topic-partition and the offset in the message",
    ),
    _rows.unavailable(
        "SINK_UNWRITABLE",
        "check the table's path, free space and permissions there, and the credentials "
        f"({ON_S3}); a batch that failed runs again",
        "Output could not be added to the table. The batch runs again, its function does not.",
        "space, permissions and credentials at the path in the message",
    ),
    _rows.invalid(
        "NOT_COMMITTED_INDIVIDUALLY",
        "give each_batch the query's checkpointLocation and the options of its one source with "
        "commitMode=individual",
        "`each_batch` was given a query that does not commit individually, or has several sources "
        "that do.",
        "whether `each_batch` and `load` have the same options",
    ),
    _rows.invalid(
        "OTHER_CHECKPOINT",
        "give keyrange.each_batch the checkpointLocation that the query is started with",
        "`each_batch` was given the checkpoint of another query, whose batches have these numbers "
        "and other records. Nothing of the batch was written or committed.",
        "the path in the message, and option checkpointLocation of the query",
    ),
    _rows.invalid(
        "UNSUITABLE_FRAME",
        "keep the columns topic, partition, offset and keyHash as the batch has them, and up to "
        "foreachBatch key and value too, of typed ones _raw_key and _raw_value",
        "A DataFrame has lost a column by which its records are known or of which dead letters are "
        "made, or has one that is keyrange's own.",
        "the column in the message",
    ),
    _rows.invalid(
        "RECORDS_OUT_OF_ORDER",
        "give keyrange.process the batch as it is read: filtered or with other columns, but "
        "not repartitioned, sorted, joined or united",
        "Rows were shuffled, or put together with others, between the source and `process`: the "
        "order of a key is lost, or its records come twice.",
        "repartition, sort, join or union in front of `process`",
    ),
    _rows.invalid(
        "WRONG_RESULT",
        "return None, a row (dict, tuple or Row) or a list of rows, of Arrow batches a "
        "RecordBatch, with the columns of the schema and values of their types; where a type "
        "depends on the record, convert the value in the function, as in float(order['price']): "
        "what that raises rejects the record alone",
        "The function returned something that is no row of the schema, or a value of a type that "
        "its column never takes, such as text for a long. Nothing of the batch was committed. A "
        "value that merely does not fit, such as a number that is too large, rejects its record.",
        "the type and the column in the message, against the schema that the job was given",
    ),
    _rows.invalid(
        "TOO_MANY_FAILURES",
        "correct the function, or where the job has none the schema of its values, or with state "
        "the records that have no key, and start the query again, which reads the same records; "
        "or raise option 'maxFailureRatio', with which such records become dead letters: 1 lets "
        "all of them fail",
        "More records of a batch failed than `maxFailureRatio` allows, or, without the option, all "
        "records of a run, and at least ten; a tombstone is done whatever the schema of values "
        "is, and does not count. Nothing of the batch was written or committed.",
        "the exceptions in the message, and the record at the offset that it names of each",
    ),
    _rows.invalid(
        "FUNCTION_FAILED",
        "correct the function at the line in the message and start the query again, which calls "
        "it with the same records; option 'maxFailureRatio' at 1 makes such records dead letters",
        "Most of the first records of a run of the query ended in an error that is the program's "
        "and no record's: a name, a module or a field that is not there, or a call with other "
        "arguments than the function takes. Nothing of the batch was written or committed.",
        "the function at the file and line in the message, and whether executors have the modules "
        "that it imports",
    ),
    _table_jobs.invalid(
        "RECORD_FAILED",
        "correct the function, or let it answer with None for such records; commitMode=individual "
        "lets a record that fails come again while others go on, and gives it up at last",
        "The function of a `keyrange.job` raised for a record, and in commitMode=batch a batch is "
        "done as a whole: it fails with any of its records.",
        "the record at the partition and offset that the message names",
    ),
    _table_jobs.invalid(
        "BAD_VALUE",
        "correct options 'valueFormat' and 'valueSchema', or of a key 'keyFormat' and 'keySchema'; "
        "or choose with badValues=null that such records have nulls, or with badValues=deadLetter "
        "that they go to the dead letters",
        "A key or a value is not what its format and its schema say, and `badValues` is fail.",
        "the record at the partition and offset that the message names",
    ),
    _table_jobs.invalid(
        "BAD_CHANGE",
        "do what the message says of this change; if it says nothing, correct the job's argument "
        "'keys', or options 'valueFormat' and 'valueSchema', of the record's key 'keyFormat' and "
        "'keySchema'; or choose with badValues=deadLetter that such records go to the dead "
        "letters: the rows of their keys stay as they were",
        "A change of a captured table has no row in a table with `keys`: the database did not tell "
        "the row or its key, the operation is none of rows, or the record is no change. "
        "`badValues` is fail; null and column are not for such a table.",
        "the record at the partition and offset that the message names",
        guide="values.md",
    ),
    _table_jobs.invalid(
        "UNPICKLABLE_FUNCTION",
        "keep large or unpicklable objects out of the function: open or load them in it, or in a "
        "module that executors import",
        "The function given to `keyrange.job` cannot be sent to the tasks that read.",
        "the reason in the message; `cloudpickle.dumps(function)`",
    ),
    _rows.invalid(
        "NO_ALARM",
        "set record.timeout and batch.time.budget to 0 where Spark's workers run functions in "
        "threads",
        "`record.timeout` needs a signal, which only the main thread of a process receives.",
        "how the cluster runs Python workers",
    ),
)
