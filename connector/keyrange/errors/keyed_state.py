"""The rows of the catalogue about the state of keys."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import ON_S3, Rows

_rows = Rows("state.md")

_ANEW: Final = (
    "begin with a new checkpoint and commitGroup: the query then reads from startingOffsets on, "
    "with empty state, and its table gets rows of records again that it has already"
)
_BACK: Final = (
    "`keyrange commits reset`, which delivers all records behind that commit again: a table "
    "without keys has their rows twice then"
)

STATE_CONDITIONS: Final = (
    _rows.corrupt(
        "STATE_GONE",
        "if an earlier commit was asked for (--at, at=, as_of), name a later one: state.retention "
        "says how long files are kept that the last one does not need; else restore the file; "
        "where it is lost, set the query back to a commit whose files are there, "
        f"by {_BACK}; without such a commit {_ANEW}",
        "A file is gone that a commit names as the state of keys.",
        "whether a lifecycle rule or somebody removes files below stateDirectory",
    ),
    _rows.corrupt(
        "STATE_DAMAGED",
        "restore the file; where there is no copy, set the query back to a commit that does not "
        f"need it, by {_BACK}",
        "A file of keys' states cannot be read, or its bytes are not those that were written. "
        "Copies on executors are thrown away and made anew; this is the original.",
        "the file in the message; `keyrange state verify`",
    ),
    _rows.unavailable(
        "STATE_UNREADABLE",
        f"check that stateDirectory can be reached and read from driver and executors ({ON_S3}, "
        "network; elsewhere: permissions); the batch runs again",
        "The store that holds the state of keys did not answer, or refused.",
        "the path in the message, and the store's own answer behind it",
    ),
    _rows.unavailable(
        "STATE_UNWRITABLE",
        f"look at the space and the permissions of stateDirectory ({ON_S3}); the batch runs again",
        "The state of keys could not be written. Nothing of the batch counts.",
        "space and permissions at the path in the message",
    ),
    _rows.invalid(
        "STATE_SCHEMA_CHANGED",
        "keep all variables, windows and aggregates, and the time that they go by; add fields, "
        f"widen or reorder them; for another state {_ANEW}",
        "The variables of a job do not take in the state that was written before: one is missing, "
        "a field was renamed or narrowed, windows or aggregates are others, or the time is: "
        "`ProcessingTime` in the place of `EventTime`, or event time of another column or header. "
        "No record was read.",
        "`state=` and `time=` of the job beside `keyrange state show`",
    ),
    _rows.invalid(
        "STATE_TOPICS_DIFFER",
        "give all topics of the query the same number of partitions, and start it again; for "
        f"another state.topic, or behind a topic that was deleted or created anew, {_ANEW}",
        "Topics with option state.topic share the state of their keys by the number of the "
        "partition. Their numbers of partitions differ, one of the topics was deleted or created "
        "anew, or the state was written with another state.topic.",
        "the topics and numbers in the message",
    ),
    _rows.invalid(
        "STATE_LEFT_OUT",
        f"run the job with its state; for one without state {_ANEW}",
        "A job without state would work on records that the state of their keys then lacks.",
        "which job the query runs",
    ),
    _rows.invalid(
        "STATE_AHEAD",
        "go on with the checkpoint that the query had until `keyrange commits gaps TABLE` lists no "
        "pending record; where it is lost, set the query back to where all before was done and "
        f"nothing behind, which the command names, by {_BACK}. Then begin with a new checkpoint",
        "A query with commit.isolation=transactional and state would go on from another checkpoint "
        "with records pending: output behind them, which waits in the other one, is made again, "
        "and the state of their keys would count these records twice. Nothing was read.",
        "`keyrange commits gaps TABLE`: the first pending record of the partition",
    ),
    _rows.invalid(
        "STATE_TOO_LARGE",
        "begin with a new checkpoint, commitTable.onFreshStart=resume, which reads the records of "
        "the batch again, and with batches of fewer records (maxOffsetsPerTrigger) or more key "
        "ranges (keyRangesPerPartition): a batch that is planned keeps its size. Keep lists and "
        "maps small",
        "In one batch a task works on keys of a key range whose state, or whose bytes, are more "
        "than the 2 GiB that a column takes. Nothing of the batch counts.",
        "`keyrange state show TABLE`: keys and bytes of each partition; maxOffsetsPerTrigger",
    ),
    _rows.invalid(
        "NO_STATE",
        "name the commit table of a job with state, windows or timers, and the group or source of "
        "that job, if the table has several; a job that has just begun has state after the first "
        "batch that changes some",
        "The commits that were named have no state of keys: their job keeps none, or no batch has "
        "changed any so far.",
        "`keyrange commits show TABLE`: the query and its group; `state=` of the job",
    ),
    _rows.invalid(
        "INITIAL_STATE_UNFIT",
        "give a column key without nulls (binary or string), each key once, and columns that are "
        "named as the state's variables and have their types; nothing was imported",
        "Rows that are to become state do not fit: a column is missing, is no variable, or has "
        "another type or a value that would lose something; or a key is null or there twice.",
        "the column in the message beside `state=` of the job",
    ),
    _rows.invalid(
        "INITIAL_STATE_TOO_LATE",
        "import into a commitGroup that nobody has committed to. A query that has begun reads with "
        "a new checkpoint and commitGroup from startingOffsets on, and its table gets rows of "
        "records again that it has already",
        "State can be imported before the first batch alone, and once: the group of the commit "
        "table has commits already.",
        "`keyrange commits history TABLE`; `keyrange state show TABLE`",
    ),
    _rows.invalid(
        "INITIAL_STATE_MISPLACED",
        "import the state again, into a new commitGroup",
        "State was imported for a topic that has been made again since, or that has another number "
        "of partitions by now: keys would lie in other partitions than their state.",
        "the topic's partitions and `keyrange state show TABLE`",
    ),
)
