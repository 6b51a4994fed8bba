"""Which Python Spark starts in the tests: `worker-python` says why it is not `sys.executable`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

WORKER_PYTHON: Final = str(Path(__file__).with_name("worker-python"))
# For a cluster whose executors are to have hosts of their own.
HOST_PYTHON: Final = str(Path(__file__).with_name("host-python"))
# Whoever a test starts finds it in the environment.
os.environ["KEYRANGE_TEST_PYTHON"] = sys.executable
