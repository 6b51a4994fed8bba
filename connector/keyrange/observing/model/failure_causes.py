"""What a query failed with, out of tracebacks of Java and Python, and nothing of a record."""

from __future__ import annotations

import re
from typing import Final

from keyrange.errors import CATALOGUE, KeyrangeError, error
from keyrange.text.escaping import one_line

# What Python's own errors of Spark look like as well, and those may quote a record.
_OURS: Final = re.compile(r"Error: (?=\[([A-Z0-9_.]+)\] )")
# The line of a traceback that names an exception.
_EXCEPTION: Final = re.compile(
    r"^(?:Caused by: |: )?(?:[\w$]+\.)*([A-Za-z_$][\w$]*(?:Error|Exception|Exit))(?::[ \t]*(.*))?$",
    re.MULTILINE,
)
# They say that another one was raised.
_WRAPPERS: Final = frozenset({"Py4JException", "Py4JJavaError", "PythonException"})
# Their texts are about programs, files and hosts. Those of all others may quote a record.
_TOLD: Final = frozenset(
    {
        *("AnalysisException", "ParseException", "DeltaAnalysisException"),
        *("ClassNotFoundException", "NoClassDefFoundError", "NoSuchMethodError"),
        *("ImportError", "ModuleNotFoundError"),
        *("FileNotFoundException", "FileNotFoundError", "NoSuchFileException"),
        *("ParentNotDirectoryException", "NotDirectoryException", "FileAlreadyExistsException"),
        *("AccessDeniedException", "AccessControlException", "PermissionError"),
        *("ConnectException", "UnknownHostException", "OutOfMemoryError"),
    }
)
_JARS: Final = (
    "start the job with the jar that has it (--packages, or --jars); if it is of Spark itself, one "
    "of the jars is made for another version of Spark"
)
_REMEDIES: Final = {
    "ClassNotFoundException": _JARS,
    "NoClassDefFoundError": _JARS,
    "NoSuchMethodError": _JARS,
    "ModuleNotFoundError": "install it for the Python of the driver and of the executors",
    "ParseException": "correct the schema or the expression that it names",
}
_TEXT_MAX: Final = 500
_TRACEBACK: Final = "Traceback (most recent call last):"
_PY4J: Final = "An error occurred while calling "
_CONDITION: Final = re.compile(r"\[[A-Z0-9_.]+\] ")


def cause_of(text: str) -> str:
    """Why a query failed, in one line: keyrange's own paragraph, the last exception of a traceback
    that the first line of the text announces, else that line; "" where there is none."""
    first, _, more = text.strip().partition("\n")
    found = first_cause(text)
    told_below = first.endswith(_TRACEBACK) or first.startswith(_PY4J)
    if not found and told_below and (last := last_cause(more)):
        condition = _CONDITION.match(first)
        found = f"{condition[0] if condition else ''}the query failed with {last}"
    return found or one_line(first)


def first_cause(text: str) -> str:
    """keyrange's own paragraph out of a Java and Python traceback, in one line; "" where there is
    none."""
    for found in _OURS.finditer(text):
        if found[1] in CATALOGUE:
            return one_line(text[found.end() :].partition("\n")[0]).strip()
    return ""


def error_in(text: str) -> KeyrangeError | None:
    """keyrange's own error, as it was raised in the process of which the text tells."""
    paragraph = first_cause(text)
    if not paragraph:
        return None
    condition, _, said = paragraph.removeprefix("[").partition("] ")
    remedy = f". To mend it: {CATALOGUE[condition].remedy}."
    return error(condition, said.removesuffix(remedy))


def last_cause(text: str) -> str:
    """The last exception of a traceback in one line, with its text where that is never of a record;
    "" where there is none."""
    found = [each for each in _EXCEPTION.finditer(text) if each[1] not in _WRAPPERS]
    if not found:
        return ""
    last = found[-1]
    if last[1] not in _TOLD:
        return f"{last[1]}, whose text may quote a record and is in Spark's own log alone"
    # Spark's errors begin with a line feed.
    said = last[2] or text[last.end() :].lstrip("\n").partition("\n")[0]
    remedy = f". To mend it: {_REMEDIES[last[1]]}." if last[1] in _REMEDIES else ""
    return one_line(f"{last[1]}: {said}".strip()[:_TEXT_MAX]) + remedy
