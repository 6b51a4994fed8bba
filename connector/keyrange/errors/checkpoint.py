"""The rows of the catalogue about checkpoints."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import Rows

_rows = Rows()

CHECKPOINT_CONDITIONS: Final = (
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
        "check that the checkpoint can be reached and read from this host (on S3: AWS_* of the "
        "environment, network; elsewhere: permissions), and start the query again",
        "The store that holds the checkpoint did not answer, or refused. No position has moved.",
        "the path in the message, and the store's own answer behind it",
    ),
    _rows.invalid(
        "BATCH_NOT_COMMITTED",
        "let the query finish the batch (a run with trigger availableNow does) and stop it; or "
        "export the positions alone, without --to",
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
)
