"""The public names, exactly."""

from __future__ import annotations

import subprocess
import sys

import pytest

import keyrange

HEAVY = {"pyspark", "pyarrow", "numpy", "numba", "llvmlite", "kafka", "deltalake", "pandas"}
HEAVY |= {"typer", "rich", "mmh3", "cramjam", "asyncio", "urllib3", "email", "zipfile"}


def test_the_public_names_are_these() -> None:
    assert keyrange.__all__ == [
        "Consumer",
        "EventTime",
        "KeyRange",
        "KeyRangeListener",
        "ListState",
        "MapState",
        "ProcessingTime",
        "ProgressListener",
        "RecordTimeout",
        "Slot",
        "Topic",
        "TopicPartition",
        "ValueState",
        "__version__",
        "acknowledge",
        "commits",
        "deduplicate",
        "each_batch",
        "job",
        "last",
        "materialize",
        "process",
        "register",
        "reject",
        "replay_dead_letters",
        "short_errors",
        "slot",
        "state",
        "state_reader",
        "topic_writer",
        "transaction",
        "windows",
    ]


def test_every_public_name_is_there() -> None:
    for name in keyrange.__all__:
        assert getattr(keyrange, name)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        keyrange.Nonsense  # noqa: B018


def test_importing_keyrange_imports_no_spark() -> None:
    """Nor anything else that takes long: `ci/import_time.py` prints how long it takes."""
    program = "import sys, keyrange; print(*sorted(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in result.stdout.split()}
    assert "keyrange" in loaded
    assert loaded.isdisjoint(HEAVY)
    ours = {name for name in result.stdout.split() if name.startswith("keyrange")}
    assert ours == {"keyrange"}


def test_the_consumer_needs_no_spark() -> None:
    program = "import sys, keyrange; keyrange.Consumer; print('pyspark' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["False"]


def test_a_query_of_partitions_is_planned_without_compiled_kernels() -> None:
    """They take a second to load, and every start of a query is a process of its own."""
    program = """
import sys
from keyrange.source.data_source import KeyRangeDataSource
from keyrange.errors import KeyrangeError
where = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
source = KeyRangeDataSource({**where, "kafka.default.api.timeout.ms": "200"})
try:
    source.streamReader(source.schema()).initialOffset()
except KeyrangeError as failure:
    print(failure.condition.name, *sorted(sys.modules))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    condition, *loaded = result.stdout.split()
    assert condition == "BROKER_UNREACHABLE"
    assert {"numba", "deltalake", "pandas"}.isdisjoint(loaded)
