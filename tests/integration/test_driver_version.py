"""Executors that have another version of keyrange than the driver."""

from __future__ import annotations

from pathlib import Path

import keyrange
import pyspark_keyrange
from brokers.real_broker import Record, Topics
from queries.ingesting import Ingest
from spark.worker_python import WORKER_PYTHON

# Tasks run in processes of a daemon of their own, beside those that plan.
PYTHON = """#!/bin/sh
case $* in
  "-m pyspark.daemon pyspark.worker") export PYTHONPATH="%s:$PYTHONPATH" ;;
esac
exec %s "$@"
"""


def test_the_job_says_which_versions_differ(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create_topic("versions")
    topics.produce(topic, [Record(b"%d" % n) for n in range(10)])
    python = tmp_path / "python"
    python.write_text(PYTHON % (installed("0.0.7", tmp_path / "other"), WORKER_PYTHON))
    python.chmod(0o755)
    environment = {"PYSPARK_PYTHON": str(python)}
    run = Ingest(topics, topic, tmp_path, "local[1]", "--available-now", environment=environment)

    assert run.wait() == 1, run.text()[-3000:]

    [said] = [line for line in run.text().splitlines() if " ERROR [" in line]
    assert "[VERSIONS_DIFFER] the driver has keyrange " in said
    assert f"this executor has keyrange 0.0.7 in {tmp_path}/other/keyrange" in said
    assert said.endswith("start the query again.")


def installed(version: str, path: Path) -> Path:
    """This keyrange under another version."""
    path.mkdir()
    for package in (keyrange, pyspark_keyrange):
        [place] = package.__path__
        (path / package.__name__).symlink_to(place)
    about = path / f"keyrange-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.4\nName: keyrange\nVersion: {version}\n")
    return path
