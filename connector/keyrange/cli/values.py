"""Keys and values of records, and points in time and spans of it, as command lines take and show
them and documents have them."""

from __future__ import annotations

import base64
import binascii
import json
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Annotated, Any, Final

import typer

from keyrange.options.value_parsers import duration_ms

KEY_HELP: Final = (
    "A key: its text, hex:00ff, base64:AP8=, or null for records without one. text: stands in "
    "front of a text that would be taken for one of these."
)
_KEY_CHARACTERS: Final = 24
KeyOption = Annotated[str, typer.Option(metavar="KEY", help=KEY_HELP)]
KeysOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY", help=f"{KEY_HELP} May be given several times.")
]


def read_key(text: str) -> bytes | None:
    """The bytes of a key, None for a null key. Raises typer.BadParameter (exit code 2)."""
    form, separator, rest = text.partition(":")
    try:
        if text == "null":
            return None
        if separator and form == "hex":
            return bytes.fromhex(rest)
        if separator and form == "base64":
            return base64.b64decode(rest, validate=True)
    except (ValueError, binascii.Error):
        raise typer.BadParameter(f"--key: what follows {form}: is no {form}") from None
    # What the terminal gave that is no UTF-8 comes as surrogates.
    return (rest if separator and form == "text" else text).encode("utf-8", "surrogateescape")


def keys_option(keys: Sequence[bytes | None]) -> str:
    """Keys as option `keys` takes them."""
    return json.dumps(
        [None if key is None else {"base64": base64.b64encode(key).decode()} for key in keys]
    )


def shown(content: Any) -> str:
    """Bytes for people: as text where they are UTF-8 that a terminal can show, else as hex; what a
    format has read of them as JSON."""
    if content is None:
        return "null"
    text = in_json(content)
    if not isinstance(content, bytes | str):
        text = json.dumps(text, ensure_ascii=False)
    # A record must not be able to move the cursor of the terminal, or to colour it.
    if isinstance(text, str) and all(c.isprintable() or c in "\n\t" for c in text):
        return text
    return f"hex:{content.hex()}" if isinstance(content, bytes) else json.dumps(in_json(content))


def short_key(content: bytes | None) -> str:
    """A key as lists show it."""
    return cut(shown(content), _KEY_CHARACTERS)


def cut(text: str, most: int) -> str:
    """A text that is no longer than so many characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def in_json(content: Any) -> Any:
    """Bytes for programs: a text, or `{"hex": "..."}` where they are no UTF-8. Of other values what
    JSON has, and elsewhere their text."""
    if isinstance(content, bytes):
        try:
            return content.decode()
        except UnicodeDecodeError:
            return {"hex": content.hex()}
    if isinstance(content, dict):
        return {str(name): in_json(each) for name, each in content.items()}
    if isinstance(content, list):
        return list(map(in_json, content))
    if isinstance(content, datetime):
        return content.isoformat()
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    return content if isinstance(content, (str, int, float, NoneType)) else str(content)


_PAUSE_MS_MAX: Final = 3_600_000
SinceOption = Annotated[
    str, typer.Option(metavar="TIME", help="From this time on: ISO 8601, or how long ago (2h).")
]


def iso(at_ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601 in UTC."""
    try:
        at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
    except OverflowError:
        return f"{at_ms} ms"
    return at.isoformat(timespec="milliseconds")


def iso_us(at_us: int) -> str:
    """Microseconds since 1970 as ISO 8601 in UTC."""
    try:
        return (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at_us)).isoformat()
    except OverflowError:
        return f"{at_us} us"


def ms_of(text: str) -> int:
    """ISO 8601, in UTC where it names no zone, as ms since 1970. Raises ValueError."""
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)


def now() -> int:
    """ms since 1970."""
    return int(time.time() * 1000)


def read_since(text: str, now_ms: int) -> int:
    """What `--since` says, as `read_time` has it; 0 where it says nothing."""
    return read_time(text, "--since", now_ms) if text else 0


def read_pause(text: str, option: str, least_ms: int = 0) -> int:
    """What an option says of the time between two looks, such as 2s, in ms: at least `least_ms`, an
    hour at the most.

    Raises typer.BadParameter (exit code 2).
    """
    try:
        return min(max(duration_ms(text), least_ms), _PAUSE_MS_MAX)
    except ValueError as failure:
        raise typer.BadParameter(f"{option} {failure}") from None


def read_time(text: str, option: str, now_ms: int) -> int:
    """ISO 8601 (UTC where it names no zone) or how long ago, such as 90s or 2h; as ms since 1970.

    Raises typer.BadParameter (exit code 2).
    """
    with suppress(ValueError):
        return ms_of(text)
    try:
        if text.isascii() and text.isdigit():
            raise ValueError
        return now_ms - duration_ms(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option}: a time is such as 2026-05-01T12:00:00Z, or 90s, 15m or 2h ago, not {text}"
        ) from None
