"""What a query failed with, out of what Spark says of it."""

from __future__ import annotations

import pytest

from keyrange.observing.model.failure_causes import cause_of, first_cause, last_cause

OURS = "[KAFKA_DATA_LOSS.LOG_TRUNCATED] gone (offset=3). To mend it: wait."


def test_a_cause_is_the_paragraph_of_keyrange() -> None:
    trace = (
        "org.apache.spark.SparkException: it failed\nTraceback:\n  File x\n"
        f"keyrange.errors.DataLossError: {OURS}\n"
        "at java\n"
    )
    assert first_cause(trace) == OURS
    assert first_cause("ValueError: a secret") == ""


@pytest.mark.parametrize("between", ["\n", " "])
def test_a_cause_is_no_error_of_spark_in_the_same_form(between: str) -> None:
    spark = (
        "pyspark.errors.exceptions.base.PySparkTypeError: [FIELD_DATA_TYPE_UNACCEPTABLE_WITH_NAME] "
        "field amount: `IntegerType()` can not accept object `4111 1111 1111 1111` in type `str`."
    )
    assert first_cause(spark) == ""
    assert first_cause(f"{spark}{between}keyrange.errors.DataLossError: {OURS}\nat x") == OURS


def test_a_cause_moves_no_cursor() -> None:
    failure = "keyrange.errors.InvalidError: [INVALID_OPTIONS] no \x1b[2J topic\r\nat java"
    assert first_cause(failure) == r"[INVALID_OPTIONS] no \u001b[2J topic"


FRAMES = 'Traceback (most recent call last):\n  File "x.py", line 3, in work\n    y()\n'
FAILED = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
    "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred. Reason: An exception was raised by the "
    f"Python Proxy. Return Message: {FRAMES}"
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "pyspark.errors.exceptions.captured.ParseException: \n[UNSUPPORTED_DATATYPE] "
            'Unsupported data type "DBL". SQLSTATE: 0A000\n\n== SQL ==\nprice dbl\n------^^^\n',
            'ParseException: [UNSUPPORTED_DATATYPE] Unsupported data type "DBL". SQLSTATE: 0A000',
        ),
        (
            "py4j.protocol.Py4JJavaError: An error occurred while calling o99.filter.\n: "
            "org.apache.spark.SparkException: Cannot find catalog plugin class.\n\tat org.x(Y:1)\n"
            "Caused by: java.lang.ClassNotFoundException: org.a.DeltaCatalog\n\tat org.x(Y:1)\n",
            "ClassNotFoundException: org.a.DeltaCatalog",
        ),
        (
            "Caused by: org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a "
            "directory: file:/lake/orders\n\tat org.x(Y:1)\n",
            "ParentNotDirectoryException: Parent path is not a directory: file:/lake/orders",
        ),
        ("KeyError: 's3cret'\n", "KeyError, whose text may quote a record"),
        ("shop.BadOrderError\n", "BadOrderError, whose text may quote a record"),
        ("org.apache.spark.SparkNumberFormatException: The value 's3cret'\n", "SparkNumberFormat"),
        ("ModuleNotFoundError: No module named 'x\x1b[2J'\n", r"No module named 'x\u001b[2J'"),
    ],
)
def test_the_last_exception_is_told_and_no_record(text: str, cause: str) -> None:
    found = last_cause(f"{FAILED}{text}\n SQLSTATE: 39000")
    assert cause in found
    assert "s3cret" not in found
    assert found.isprintable()


def test_what_names_no_exception_has_no_last_one() -> None:
    assert last_cause("[STREAM_FAILED] it ended with Error: s3cret, and more") == ""


def test_a_first_line_that_ends_in_a_traceback_is_replaced_by_its_end() -> None:
    text = (
        f"{FAILED}Caused by: java.lang.ClassNotFoundException: org.a.DeltaCatalog\n\tat org.x(Y:1)"
    )
    assert cause_of(text) == (
        "[STREAM_FAILED] the query failed with ClassNotFoundException: org.a.DeltaCatalog. To mend "
        "it: start the job with the jar that has it (--packages, or --jars); if it is of Spark "
        "itself, one of the jars is made for another version of Spark."
    )
    assert cause_of(f"{FAILED}keyrange.errors.DataLossError: {OURS}\n") == OURS
    assert cause_of("\n[UNSUPPORTED_DATATYPE] no DBL\n\n== SQL ==\n") == (
        "[UNSUPPORTED_DATATYPE] no DBL"
    )
    assert cause_of("") == ""
