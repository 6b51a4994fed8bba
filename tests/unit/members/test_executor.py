"""What a worker can tell of its executor."""

from __future__ import annotations

import pytest

from keyrange.members.executor import read_executor

BACKEND = ["java", "-cp", "x", "org.apache.spark.executor.CoarseGrainedExecutorBackend"]


def test_an_executor_of_a_cluster_has_its_id_and_cores_in_its_arguments() -> None:
    arguments = [*BACKEND, "--executor-id", "7", "--hostname", "h", "--cores", "4", "--app-id", "a"]

    assert read_executor(arguments, {}, "spark://m:7077") == ("7", 4)


def test_the_environment_says_the_cores_where_the_arguments_do_not() -> None:
    found = read_executor([*BACKEND, "--executor-id", "1"], {"SPARK_EXECUTOR_CORES": "3"}, None)

    assert found == ("1", 3)


@pytest.mark.parametrize(("master", "cores"), [("local[2]", 2), ("local[5, 3]", 5)])
def test_in_local_mode_the_driver_is_the_executor(master: str, cores: int) -> None:
    assert read_executor(["java", "SparkSubmit"], {}, master) == ("driver", cores)


def test_local_with_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 6)

    assert read_executor([], {}, "local[*]")[1] == 6
    assert read_executor([], {}, "local")[1] == 6
