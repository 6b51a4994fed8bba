"""Code blocks of the documents, and how they are run: what is shown is what is tested.

A block says its language, and what is special about it:

    ```python                              runs, in the file's one namespace, where `spark` is there
    ```bash                                lines of the command line, run one by one
    ```python file=shop/totals.py          a module that executors import
    ```python load-only="why"              runs, but what it defines is not read
    ```bash no-test="why"                  cannot run here: listed in architecture/test_guides.py
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Those whose blocks run.
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "MIGRATION.md",
    *sorted((ROOT / "connector" / "guides").glob("*.md")),
]
# Those whose links have to lead somewhere.
PAGES = sorted([*ROOT.glob("*.md"), *DOCUMENTS[2:], *(ROOT / "conf").rglob("*.md")])

_FENCE = re.compile(r"^```(?P<info>[^`\n]*)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Snippet:
    """A block of a document; `line` is that of its first line of code."""

    path: Path
    line: int
    language: str
    marks: Mapping[str, str]
    text: str

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}"


def snippets(path: Path) -> Iterator[Snippet]:
    """The blocks of a document, in their order."""
    document = path.read_text()
    for found in _FENCE.finditer(document):
        language, *marks = shlex.split(found["info"]) or [""]
        named = dict(mark.partition("=")[::2] for mark in marks)
        line = document.count("\n", 0, found.start()) + 2
        yield Snippet(path, line, language, named, found["text"])


def command_lines(text: str) -> list[list[str]]:
    """The words of each command of a block, without comments."""
    joined = text.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]
