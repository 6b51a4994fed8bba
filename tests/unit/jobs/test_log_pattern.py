"""How the log of a job's driver tells an error: by the pattern of conf/log4j2.properties.

log4j itself is not here; both of its expressions mean the same to Python.
"""

from __future__ import annotations

import re
from pathlib import Path

CONF = Path(__file__).parents[3] / "conf" / "log4j2.properties"
OURS = "[RECORD_FAILED] KeyError: 'price' (offset=231). To mend it: correct the function."
FRAMES = '  File "run.py", line 38, in work\n    yield from run_task()\n'
TRACE = f"SparkException: Traceback (most recent call last):\n{FRAMES}"
JAVA = "\n\tat org.apache.spark.Task.run(Task.scala:147)\n\t... 12 more\n"


def logged(event: str) -> str:
    text = CONF.read_text().replace("\\\\", "\\")
    [line] = re.findall(r"^appender\.console\.layout\.pattern = (.*)$", text, re.MULTILINE)
    found = re.fullmatch(
        r"%replace\{%replace\{%d\{[^}]*\} %p %c\{1\}: %m%n%ex\}\{(.*)\}\{\$1 \$2\}\}\{(.*)\}\{\}",
        line,
    )
    assert found is not None
    return re.sub(found[2], "", re.sub(found[1], r"\1 \2", event))


def test_an_error_of_keyrange_is_a_line() -> None:
    failed = f"ERROR Executor: Exception\n{TRACE}keyrange.errors.InvalidError: {OURS}\n{JAVA}"
    assert logged(failed + failed) == f"ERROR Executor: Exception {OURS}\n"


def test_of_another_error_all_is_kept_but_the_stack_of_java() -> None:
    failed = f"ERROR Executor: Exception\n{TRACE}ValueError: x{JAVA}Caused by: java.io.IOException"
    assert logged(failed) == (
        f"ERROR Executor: Exception\n{TRACE}ValueError: x\nCaused by: java.io.IOException"
    )


def test_what_a_users_function_raised_stays_above_the_error_that_it_caused() -> None:
    failed = (
        f"ERROR Executor: Exception\n{TRACE}ValueError: x\n\nThe above exception was the direct "
        f"cause of the following exception:\n\n{TRACE}keyrange.errors.InvalidError: {OURS}\n"
    )
    assert logged(failed) == failed


def test_other_lines_are_as_they_were() -> None:
    assert logged("WARN Utils: Your hostname resolves to a loopback address\n") == (
        "WARN Utils: Your hostname resolves to a loopback address\n"
    )
