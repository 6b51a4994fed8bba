"""The notebook that looks at a query, run as a script that nobody told of one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from spark.notebooks import JOBS


def test_a_script_without_settings_ends_in_a_line(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if "NOTEBOOK" not in name}
    ended = subprocess.run(
        [sys.executable, "-P", str(JOBS / "inspect_query.py")],
        env=environment,
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    said = "set NOTEBOOK_CHECKPOINT and NOTEBOOK_COMMIT_TABLE to those of a query\n"
    assert ended.stderr == said
