"""Spark's daemon, which forks the Python processes of tasks, with what all of them import imported
already. `worker-python` runs this file in its place."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Final

_IMPORTED: Final = (
    "pandas",
    "pyarrow.dataset",
    "keyrange.individual_commits.table.commit_table",
    "keyrange.jobs.data_source",
    "keyrange.jobs.job_task",
    "keyrange.source.batch",
    "keyrange.source.metadata_cache",
    "keyrange.source.task_reader",
    "keyrange.storage.delta_store",
    "keyrange.wire.chunk_decoder",
    "keyrange.work.keyed_run",
)

if __name__ == "__main__":
    # No thread may run where a process is forked.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    sys.path[0] = os.getcwd()
    for name in (sys.argv[1], *_IMPORTED):
        importlib.import_module(name)
    daemon = importlib.import_module("pyspark.daemon")
    # A process collects garbage behind each of its tasks: 80 ms of CPU to look over what was
    # imported here, of which nothing ever is garbage.
    gc.collect()
    gc.freeze()
    daemon.manager()
