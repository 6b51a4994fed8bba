"""The versions that are tested, and README's row of them.

    python -P tests/platforms/versions.py    write the row of what has passed into README

test_versions.py runs the set-ups that are listed here, and keeps in tested.json which have passed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

README: Final = Path(__file__).parents[2] / "README.md"
TESTED: Final = Path(__file__).with_name("tested.json")
# The columns of README's table.
USUAL: Final[Mapping[str, str]] = {
    "Python": "3.11",
    "Java": "17",
    "Spark": "4.2.0",
    "delta-spark": "4.4.0",
    "deltalake": "1.6.6",
    "Kafka brokers": "4.3.1",
}

_ON_SPARK: Final = (
    "tests/integration/test_stream_read.py::test_available_now_restart_and_new_partition",
    "tests/integration/test_table_jobs.py::test_records_as_they_are",
    "tests/integration/test_table_jobs.py::test_a_function_of_a_cell",
    "tests/integration/test_commit_table_spark.py::test_both_writers_take_turns_at_one_table",
)
# A Spark that there are no jars for, neither Delta's nor of the JVM connector.
_WITHOUT_JARS: Final = (
    *("-n", "2", "--dist", "loadfile"),
    *(f"tests/integration/test_{part}.py" for part in ("stream_read", "batch_read", "state")),
    *(f"tests/integration/test_{part}.py" for part in ("table_jobs", "changed_options")),
    # It reads a table by Spark's Delta.
    *("--deselect", "tests/integration/test_table_jobs.py::test_records_as_they_are"),
)
_UNITS: Final = ("-n", "3", "--dist", "worksteal", "tests/unit")
# The core of the suite that compares with the JVM connector.
_PARITY: Final = tuple(
    f"tests/parity/test_{part}_parity.py" for part in ("batch", "rows", "stream")
)

# What is sent in transactions; brokers before 2.5 are left out by the tests themselves.
_TRANSACTIONS: Final = tuple(
    f"tests/integration/test_{part}.py"
    for part in ("transactions", "consumer_transactions", "topic_jobs")
)


@dataclass(frozen=True, slots=True)
class Setup:
    """A set-up, and pytest's arguments of what it has to pass. `changed` are its unusual versions.

    `packages` are requirements in place of the lock's.
    """

    name: str
    tests: Sequence[str]
    changed: Mapping[str, str]
    packages: Sequence[str] = ()

    @property
    def versions(self) -> dict[str, str]:
        """All of its versions, by README's columns."""
        return {**USUAL, **self.changed}


def _kafka(version: str) -> Setup:
    return Setup(f"kafka-{version}", (*_PARITY, *_TRANSACTIONS), {"Kafka brokers": version})


SETUPS: Final = (
    # Everything else that is tested runs in these versions, too.
    Setup("usual", _ON_SPARK, {}),
    Setup("python-3.12", _ON_SPARK, {"Python": "3.12"}),
    Setup("python-3.12-units", _UNITS, {"Python": "3.12"}),
    Setup("python-3.13", _ON_SPARK, {"Python": "3.13"}),
    Setup("python-3.13-units", _UNITS, {"Python": "3.13"}),
    Setup("java-21", _ON_SPARK, {"Java": "21"}),
    Setup("java-25", _ON_SPARK, {"Java": "25"}),
    Setup("spark-4.2.1", _ON_SPARK, {"Spark": "4.2.1"}, packages=("pyspark==4.2.1",)),
    Setup("spark-4.3.0", _WITHOUT_JARS, {"Spark": "4.3.0"}, packages=("pyspark==4.3.0",)),
    *map(_kafka, ("2.3.1", "2.8.2", "3.9.2", "4.3.1")),
    # The oldest one that takes transactions.
    Setup("kafka-2.5.1", _TRANSACTIONS, {"Kafka brokers": "2.5.1"}),
)


def keep(setup: Setup, passed: int, path: Path = TESTED) -> None:
    """Note that a set-up has passed so many tests. One that is no longer listed is forgotten."""
    known = {each["name"]: each for each in read(path)}
    known[setup.name] = {"name": setup.name, "passed": passed, "versions": setup.versions}
    kept = [known[each.name] for each in SETUPS if each.name in known]
    path.write_text(json.dumps(kept, indent=1) + "\n")


def read(path: Path = TESTED) -> list[dict[str, Any]]:
    """What has passed; nothing where there is no file."""
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def row(tested: Iterable[Mapping[str, Any]]) -> str:
    """README's row: the versions of all that has passed."""
    of_each = [each["versions"] for each in tested]
    cells = (
        ", ".join(sorted({versions[column] for versions in of_each}, key=_numbers))
        for column in USUAL
    )
    return "| tested | " + " | ".join(cells) + " |"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def with_row(page: str, tested: Iterable[Mapping[str, Any]]) -> str:
    """A page with the row in place of the one that it has."""
    made, count = re.subn(r"^\| tested \|.*$", row(tested), page, flags=re.M)
    if count != 1:
        raise ValueError("the page has no row of what is tested, or several")
    return made


def outdated(tested: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The set-ups of which this file says something else than what has passed."""
    known = {each["name"]: each["versions"] for each in tested}
    return (each.name for each in SETUPS if known.get(each.name) != each.versions)


if __name__ == "__main__":
    README.write_text(with_row(README.read_text(), read()))
    for name in outdated(read()):
        print(f"{name}: has not passed in these versions")
