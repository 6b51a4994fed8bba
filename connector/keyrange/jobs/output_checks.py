"""Whether a job's outputs and its checkpoint go together, before anything is made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from pyspark.sql import SparkSession

from keyrange.errors import invalid_options
from keyrange.jobs.output_tables import TableArguments
from keyrange.jobs.table_names import OR_TOPIC
from keyrange.options import SourceOptions
from keyrange.options.commits import path_mistake
from keyrange.options.locations import misplaced
from keyrange.storage.data_files import TARGET_BYTES
from keyrange.storage.directory import no_place

_OPTIMIZED: Final = "spark.sql.extensions"


def check_places(tables: Sequence[TableArguments], checkpoint: str, options: SourceOptions) -> None:
    """Raises INVALID_OPTIONS where a path is none, or lies in another one."""
    wrong = []
    if (mistake := path_mistake(checkpoint)) is not None:
        wrong.append(f"checkpoint {mistake}")
    for table in (each.path for each in tables):
        if (mistake := path_mistake(table)) is not None:
            wrong.append(f"table {mistake}{'' if '/' in table else OR_TOPIC}")
        wrong += misplaced(table, checkpoint, options.commits, options.members)
        if (why := no_place(table)) is not None:
            wrong.append(f"table must be a Delta table or an empty directory, and {why}")
    if wrong:
        raise invalid_options(wrong)


def check_files(session: SparkSession, compression: str, target_bytes: int, every: int) -> None:
    """Raises INVALID_OPTIONS for how files of tables cannot be written."""
    wrong = []
    if compression not in ("snappy", "zstd"):
        wrong.append("compression must be snappy or zstd")
    if target_bytes < 1 << 20:
        wrong.append("target_bytes must be at least 1 MiB")
    if every < 0:
        wrong.append("optimize_every must be a number of batches, or 0 for never")
    if every > 0 and "delta" not in (session.conf.get(_OPTIMIZED, "") or "").lower():
        wrong.append(
            "optimize_every needs delta-spark in the session, whose spark.sql.extensions name "
            "io.delta.sql.DeltaSparkSessionExtension"
        )
    if wrong:
        raise invalid_options(wrong)


def check_no_files(
    topics: Collection[str], compression: str, target_bytes: int, every: int
) -> None:
    """Of a job all of whose output goes to `topics`. Raises INVALID_OPTIONS for what only tables
    have."""
    if not topics:
        return
    given = {
        "compression": compression != "snappy",
        "target_bytes": target_bytes != TARGET_BYTES,
        "optimize_every": every != 0,
    }
    wrong = [f"{name} is for tables, and the job writes none" for name, is_ in given.items() if is_]
    if given["compression"]:
        wrong.append("a topic's is option kafka.compression.type of keyrange.Topic")
    if wrong:
        raise invalid_options(wrong)
