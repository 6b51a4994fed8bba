"""The rows of the catalogue about what a query asks for, its checkpoint, and its machine: options,
functions, positions, Java and jars."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import ON_S3, Rows

_rows = Rows()
_reading = Rows("reading.md")
_key_ranges = Rows("key-ranges.md")
_table_jobs = Rows("table-jobs.md")

SOURCE_CONDITIONS: Final = (
    _rows.invalid(
        "INVALID_OPTIONS",
        "change what is named: `keyrange options NAME` says what an option takes, and help() of a "
        "function what its arguments are",
        "One or more options or arguments do not exist, have a value that cannot be read, or "
        "contradict each other. All of them are named at once, before the first connection. "
        "Nothing was read.",
        "`keyrange options` has every option with its values; `keyrange doctor --option NAME=VALUE`"
        " checks names",
    ),
    _rows.invalid(
        "ADDRESS_NOT_SERVED",
        "name another port, from 1 to 65535, at which nothing listens, or end what listens there; "
        "and an address that this host has",
        "A command or a job was to serve at an address and a port of this host, and the system "
        "does not let it: mostly something listens there already.",
        "the system's reason in the message; `ss -ltnp`",
    ),
    _rows.denied(
        "OPTION_NOT_ALLOWED",
        "name a module or path that is allowed, or ask the administrator of the processes to "
        "allow it in their environment (KEYRANGE_ALLOWED_MODULES, KEYRANGE_ALLOWED_PATHS)",
        "An option names a module or a path, and the process that reads the option, or would "
        "open the path, has a list of allowed prefixes in its environment without it. keyrange "
        "imported and opened nothing.",
        "the variable in the message, where the driver and the executors were started",
        guide="security.md",
    ),
    _rows.invalid(
        "READ_ONLY_SOURCE",
        "write to Kafka with keyrange.topic_writer in foreachBatch, or into_topic of a job; read "
        'with spark.read or spark.readStream and format("keyrange"), and in SQL through CREATE '
        "TEMPORARY VIEW name USING keyrange OPTIONS (...)",
        'format("keyrange") reads Kafka and writes nothing, and no table of a catalog can be of '
        "this format. Nothing was written.",
        "`df.write`, `writeStream`, `saveAsTable` or `CREATE TABLE` in the program",
        guide="../../MIGRATION.md",
    ),
    _reading.invalid(
        "INVALID_SCHEMA",
        "leave .schema(...) out: option 'columns' says which columns there are, or with option "
        "'mapInArrow' mapInArrowSchema",
        "`.schema(...)` was called on the reader with another schema than the source has.",
        "option `columns` chooses columns",
    ),
    _reading.invalid(
        "MAP_FUNCTION_NOT_FOUND",
        "install the module where the executors' Python finds it, or correct option 'mapInArrow'",
        "An executor could not import the function that option `mapInArrow` names.",
        "the import error that stands in the message, and `spark.sparkContext.addPyFile`",
    ),
    _reading.invalid(
        "MAP_FUNCTION_UNFIT",
        "name a function in option 'mapInArrow' that takes an iterator of pyarrow.RecordBatch "
        "and returns another, such as a generator function",
        "The name in `mapInArrow` is no function, or the function returned no iterator.",
        "the type that the message names",
    ),
    _reading.invalid(
        "MAP_RESULT_MISMATCH",
        "correct option 'mapInArrowSchema', or let the function yield pyarrow.RecordBatch of "
        "exactly these columns; nothing is cast",
        "The function of `mapInArrow` yielded a batch whose columns are not exactly those of "
        "`mapInArrowSchema`.",
        "both schemas, which stand in the message; a timestamp is timestamp[us, tz=UTC]",
    ),
    _reading.invalid(
        "MAP_FUNCTION_FAILED",
        "read the function's own error, which stands below, and correct the function",
        "The function of `mapInArrow` raised an error. The task fails, and Spark tries it again.",
        "the function's traceback, below the message in the executor's and the driver's log",
    ),
    _rows.invalid(
        "VERSIONS_DIFFER",
        "install one version of keyrange into the Python of the driver and of all executors, and "
        "start the query again",
        "The driver and an executor have different versions of keyrange. The task read nothing.",
        "both versions in the message, and `keyrange --version` on each host; an upgrade of a "
        "host's Python under a query that runs also ends here",
        guide="deploy.md",
    ),
    _rows.invalid(
        "INVALID_OFFSETS",
        'in an option offsets are JSON such as {"topic": {"0": 23, "1": -2}}; with a checkpoint '
        "that another kind of source has written no query of Kafka goes on: name another "
        "checkpointLocation",
        "A text that should hold offsets as JSON does not, or the checkpoint is that of another "
        "kind of source.",
        "the text and the position in it, both in the message",
    ),
    _key_ranges.invalid(
        "RANGE_FETCH_NOT_ACCEPTED",
        "read the topic with splitBy=partition, in a query of its own",
        "The query would split a topic whose records need the order of their partition: "
        "`accept.range.fetch` says so.",
        "the owner of the topic, who set `accept.range.fetch`",
    ),
    _key_ranges.invalid(
        "KEY_RANGES_MISSING",
        "name every partition, or the whole topic, in keyRanges",
        "`keyRanges` names some partitions, and the query reads others too.",
        "the partitions that the message names; `keyrange ranges plan --suggest` prints ranges "
        "for all",
    ),
    _key_ranges.invalid(
        "PARTIAL_KEY_RANGES",
        "stop the queries of all ranges at the same offsets, and start anew from there with "
        "startingOffsets; a range that stood elsewhere is read twice, or left out in part",
        "The query reads some keys of its partitions only, so its positions do not cover the "
        "others. The command or option would skip those keys.",
        "`keyrange checkpoint show` of each query that has a part",
    ),
    _key_ranges.invalid(
        "KEY_RANGES_CHANGED",
        "restore keyRanges and keyRangesCoverage as they were, or let a query with a "
        "checkpoint of its own (and a commitGroup of its own) read the other ranges",
        "A query with `keyRangesCoverage=partial` started with other ranges than its checkpoint "
        "has, or the commits that it resumes from. It would skip records that no query has read.",
        "the two lists of ranges in the message: of the checkpoint or commits, and of the options",
    ),
    _rows.invalid(
        "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED",
        "name every partition of the subscribed topics and no other (-1 is latest, -2 "
        "earliest), or say where the rest is with startingOffsetsDefault or "
        "endingOffsetsDefault",
        "`startingOffsets` or `endingOffsets` names other partitions than the query reads.",
        "the partitions in the message; `keyrange doctor --topic TOPIC` lists the partitions of "
        "a topic",
    ),
    _rows.invalid(
        "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED",
        "name every partition of the subscribed topics and no other, or give one timestamp for "
        "all with startingTimestamp or endingTimestamp",
        "An option with a time for each partition names other partitions than the query reads.",
        "the partitions in the message; `keyrange doctor --topic TOPIC` lists the partitions of "
        "a topic",
    ),
    _rows.invalid(
        "NO_OFFSET_FOR_TIMESTAMP",
        "name an earlier timestamp, or set startingOffsetsByTimestampStrategy=latest to start "
        "such partitions at their end",
        "A partition has no record at or after the time that the query should start at.",
        "the partition and the time in the message",
    ),
    _reading.invalid(
        "NO_GROUP_OFFSETS",
        "correct the group's name, or say with startingOffsetsDefault where partitions without "
        "a committed offset start",
        "`startingOffsets=group`, and the Kafka group has no committed offset for a partition.",
        "`kafka-consumer-groups --describe --group GROUP`",
    ),
    _rows.invalid(
        "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
        "choose startingOffsets that do not lie behind endingOffsets",
        "After offsets and times were looked up, a partition would end before it starts.",
        "both offsets in the message",
    ),
    _table_jobs.invalid(
        "UNSUPPORTED_WRITER_CALL",
        "call trigger, queryName and start alone on what `into` returns; what the call was for is "
        "an argument of keyrange.job or into",
        "A call on the writer of a keyrange.job would have sent its records to another sink, or "
        "its progress to another checkpoint. The records would be in no table, and the query "
        "would go on behind them. No query was started.",
        "the call in the message",
    ),
    _table_jobs.data_loss(
        "OUTPUT_PASSED_OVER",
        "begin with a new checkpoint and a startingOffsets from before the batch that is named "
        "(`keyrange checkpoint show` has the offsets of each batch); rows that the table has "
        "from there on come a second time, so remove them first",
        "Spark's checkpoint says that a batch is finished, and keyrange has not written it to the "
        "table. The query stops before it goes on behind these records.",
        "how the query was started before, and who removed files below `CHECKPOINT/keyrange`",
    ),
    _table_jobs.invalid(
        "CONCURRENT_QUERY",
        "leave one of them running: a checkpoint is one query's",
        "Another driver runs the query of this checkpoint. It was faster with the batch, and this "
        "run ends. Nothing of the batch was written twice.",
        "which processes were started with the checkpoint; Spark ends the slower one by errors of "
        "its own too, CONCURRENT_QUERY and CONCURRENT_STREAM_LOG_UPDATE",
    ),
    _table_jobs.invalid(
        "OTHER_TABLE",
        "name the table that the query has written so far; if it was moved, say so by "
        "into(..., moved_from=PATH); for another table begin with a new checkpoint, and with "
        "individual commits with another commitTable too: it gets what the topic still has from "
        "startingOffsets on",
        "The checkpoint of a query goes with one table, which has all batches that the checkpoint "
        "calls finished. Another table would begin in the middle of the topic. Nothing of the "
        "batch was written.",
        "both paths in the message, and `DESCRIBE HISTORY` of the table",
    ),
    _table_jobs.invalid(
        "OTHER_KEYS",
        "give into(..., keys=...) the columns that the message names first; for other keys, or "
        "none, begin with another table and a new checkpoint, which reads again what the topic "
        "still has from startingOffsets on",
        "The table holds the last row of each key. Written by other keys, or without any, it would "
        "get further rows of keys that it has, and rows of different keys would become one. "
        "Nothing of the batch was written.",
        "the arguments of into() now and when the query was started before",
    ),
    _table_jobs.unavailable(
        "WORKER_CRASHED",
        "read the end of the executor's log (stderr): os._exit, a native library that crashes or "
        "too little memory end a process; with spark.python.worker.faulthandler.enabled=true the "
        "log has the line of the function; the batch runs again",
        "A Python process of an executor ended while it worked on records, in all attempts of its "
        "task. Which record it had is not known, and no record is given up for it. Nothing of the "
        "batch was written or committed.",
        "the executor's log, its exit code and its memory",
    ),
    _table_jobs.data_loss(
        "TABLE_RESTORED",
        "first restore the version that the table had before, and start the query again, which "
        "loses nothing; or begin with a new checkpoint (individual commits: and another "
        "commitGroup) at the startingOffsets where the table ends, which reads the rows that went "
        "again; started as it is, the query goes on without them",
        "Somebody restored an older version of the table (RESTORE TABLE) while the query ran. Rows "
        "of finished batches went with it, and no batch would write them again. Nothing of the "
        "batch was written.",
        "`DESCRIBE HISTORY` of the table: the batches (keyrange.batchId) behind that version",
    ),
    _table_jobs.invalid(
        "CHECKPOINT_BEHIND",
        "restore the newest checkpoint; where it is lost, begin with a new checkpoint, with "
        "individual commits and commitTable.onFreshStart=resume, if the commit table is the newest "
        "one; with whole batches and a startingOffsets exactly behind what the table has: rows of "
        "earlier offsets come twice, and records before later ones are left out",
        "The checkpoint is an older copy: the table has later batches of this query. The table "
        "takes each batch number once, so it would have passed over the records of this batch. "
        "Nothing of it was written.",
        "`keyrange checkpoint show LOCATION` beside `DESCRIBE HISTORY` of the table, which has "
        "keyrange.batchId",
    ),
    _key_ranges.corrupt(
        "INCONSISTENT_PLAN",
        "set splitBy, keyRanges and keyRangesPerPartition to what they were when the checkpoint's "
        "last batch was planned, and report it: a plan has to be right with all options",
        "The planner compared what the tasks of a batch would read with what the batch hands out: "
        "some keys and offsets would have been read twice, or by no task. No task was started.",
        "`keyrange checkpoint show CHECKPOINT` for the batch, and which options changed before it",
    ),
    _reading.invalid(
        "DELTA_NOT_FOUND",
        "submit the job with the --packages that the message names, or with these jars by --jars; "
        "in the Spark that they are for, which extra delta brings; or let keyrange write the "
        "table: --written-by keyrange needs no jars",
        "A job whose table Spark writes was started without the jars of Delta, or with those for "
        "another version of Spark. No query was started.",
        "the arguments of spark-submit, and `spark.jars.packages`",
    ),
    # Checkpoints: model/checkpoint.py, storage/checkpoint_files.py
    _rows.invalid(
        "UNSUPPORTED_CHECKPOINT",
        "read the checkpoint with the keyrange version that wrote it, or a newer one",
        "The offset in the checkpoint has a form that this version does not know. Nothing was "
        "read, and the checkpoint is as it was.",
        "`keyrange --version`, here and where the checkpoint was written",
    ),
    _rows.invalid(
        "UNCOMMITTED_FOREIGN_BATCH",
        'let format("kafka") finish the batch, then change the format; or give the initial '
        "positions, which `keyrange checkpoint show` prints, as JSON in startingOffsets",
        "The checkpoint is one of Spark's Kafka source, whose first batch was planned and never "
        "committed. Only that source can read where the batch began.",
        "`keyrange checkpoint show LOCATION`",
        guide="../../MIGRATION.md",
    ),
    _rows.invalid(
        "INVALID_CHECKPOINT_PATH",
        "name the checkpointLocation of a query that has planned at least one batch",
        "The path that was named holds no checkpoint, or keyrange cannot read it.",
        "the path: it is the query's checkpointLocation, the directory that holds `offsets`",
    ),
    _rows.unavailable(
        "CHECKPOINT_UNREADABLE",
        f"check that the checkpoint can be reached and read from this host ({ON_S3}, "
        "network; elsewhere: permissions), and start the query again",
        "The store that holds the checkpoint did not answer, or refused. No position has moved.",
        "the path in the message, and the store's own answer behind it",
    ),
    _rows.invalid(
        "BATCH_NOT_COMMITTED",
        "let the query finish the batch (a run with trigger availableNow does) and stop it; or "
        "export the positions alone, without --to: from them on the batch is read again, and a "
        "sink that has it has it twice",
        "A batch is planned and not committed. Spark will read it as it was planned, so the new "
        "positions would not apply to it.",
        "`keyrange checkpoint show LOCATION`",
        guide="on-call.md",
    ),
    _rows.invalid(
        "POSITION_NOT_ON_FILE",
        "let the query finish a batch and export again, or name the positions in "
        "startingOffsets yourself; -2 is earliest",
        "The checkpoint does not say where a partition would be read next.",
        "`keyrange checkpoint show LOCATION`, column `committed`",
    ),
    _rows.unavailable(
        "CHECKPOINT_NOT_WRITTEN",
        "remove the files that the export has written there, and export again to a path that "
        "can be written",
        "The copy of a checkpoint is not complete. The checkpoint that was copied is untouched.",
        "the reason in the message; whether the query still runs",
    ),
    # Java, jars and the broker of `keyrange broker`: embedded/
    _rows.invalid(
        "JAVA_NOT_FOUND",
        "install Java 17 or newer, or set JAVA_HOME",
        "No Java was found, or one that is too old, for the broker of `keyrange broker`, for "
        "fetching jars, or for a job of `jobs/` that was started without spark-submit.",
        "`keyrange doctor`",
    ),
    _rows.invalid(
        "PYSPARK_NOT_FOUND",
        "install pyspark beside keyrange, or set SPARK_HOME",
        "A command needs the jars that pyspark brings, and there is no pyspark.",
        "`keyrange doctor`; extra `spark`, which brings pyspark",
    ),
    _rows.unavailable(
        "JARS_NOT_RESOLVED",
        "check that there is such a version and that a Maven repository can be reached; Ivy's own "
        "log is named above",
        "keyrange could not fetch the jars that it needs.",
        "Ivy's log, which the message names; a proxy or a mirror that Ivy's settings lack",
    ),
    _rows.invalid(
        "BROKER_DIRECTORY_UNUSABLE",
        "name a directory with --dir that can be made and written here; without --dir it is in "
        "the user's cache, or where KEYRANGE_CACHE says",
        "The directory of the broker of `keyrange broker` cannot be made or written. No broker was "
        "started.",
        "the path in the message: its owner, its permissions, and whether the disk has room",
    ),
    _rows.unavailable(
        "BROKER_NOT_STARTED",
        "read the end of the broker's log, named above",
        "The broker of `keyrange broker start` did not start, or did not end.",
        "the log that the message names",
    ),
)
