"""What a client runs as Databricks runs a notebook: with `spark` and `dbutils` in its namespace.

databricks.py NOTEBOOK WIDGETS      WIDGETS as a JSON object
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from spark.notebooks import Databricks, run_notebook

if __name__ == "__main__":
    databricks = Databricks(SparkSession.builder.getOrCreate(), json.loads(sys.argv[2]))
    run_notebook(sys.argv[1], databricks)
    print(f"{databricks.restarts} restarts")
