"""Text that others wrote, fit for a terminal, a log and an error: it moves and colours nothing.

Names, reasons and errors come from brokers, tables, checkpoints and people. What a reader does not
see is written as an escape of JSON, so that a document stays one, and so that two names that differ
look different: control characters (an escape sequence begins with one), line and paragraph
separators, lone surrogates, and formats such as those that turn the direction of writing.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def plain(text: str) -> str:
    """The text with its line feeds and tabs."""
    return _escaped(text, "\n\t")


def one_line(text: str) -> str:
    """The text in one line: a break in it does not look like another line of a log."""
    if text.isprintable():
        return text
    return _escaped("".join(" " if each in "\t\n\v\f\r" else each for each in text), "")


def _escaped(text: str, kept: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        _escape(each) if each not in kept and unicodedata.category(each) in _UNSEEN else each
        for each in text
    )


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
