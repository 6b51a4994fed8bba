"""Texts that others wrote, fit for a page: names of topics, keys, errors.

In HTML they are escaped. In a figure plotly reads a few tags and entities by itself, so they are
escaped there as well. Neither may hold what a reader cannot see.
"""

from __future__ import annotations

import html
import json
from typing import Any, Final

from keyrange.text.plain import one_line

_SHORT_CHARACTERS: Final = 60
_TEXT_CHARACTERS: Final = 600


def visible(text: str, most: int = _TEXT_CHARACTERS) -> str:
    """A text in one line, of what a reader sees."""
    plain = " ".join(one_line(text).split())
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def escaped(text: str, most: int = _TEXT_CHARACTERS) -> str:
    """A text for HTML, in elements and in quoted attributes."""
    return html.escape(visible(text, most))


def label(text: str, most: int = _TEXT_CHARACTERS) -> str:
    """A text for a figure: plotly reads no tag in it, no entity and no template."""
    return _inert(visible(text, most))


def short_label(text: str) -> str:
    """The same for an axis or a legend, where a long one leaves no room: its ends tell it apart."""
    plain = visible(text)
    if len(plain) > _SHORT_CHARACTERS:
        half = _SHORT_CHARACTERS // 2
        plain = f"{plain[: half - 1]}…{plain[-half:]}"
    return _inert(plain)


def _inert(plain: str) -> str:
    # Of a template `%{...}` the brace is what matters: it is written as another character.
    return html.escape(plain.replace("%{", "%\uff5b"), quote=False)


def in_script(document: Any) -> str:
    """JSON that cannot end the script element that it stands in."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
