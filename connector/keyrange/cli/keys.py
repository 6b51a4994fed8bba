"""Keys and values of records, as command lines take and show them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

KEY_HELP: Final = (
    "A key: its text, hex:00ff, base64:AP8=, or null for records without one. text: stands in "
    "front of a text that would be taken for one of these."
)
_KEY_CHARACTERS: Final = 24
KeyOption = Annotated[str, typer.Option("--key", metavar="KEY", help=KEY_HELP)]
KeysOption = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="KEY", help=f"{KEY_HELP} May be given several times."),
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


def shown(content: bytes | None) -> str:
    """Bytes for people: as text where they are UTF-8 that a terminal can show, else as hex."""
    if content is None:
        return "null"
    text = in_json(content)
    # A record must not be able to move the cursor of the terminal, or to colour it.
    is_shown = isinstance(text, str) and all(c.isprintable() or c in "\n\t" for c in text)
    return text if is_shown else f"hex:{content.hex()}"


def short_key(content: bytes | None) -> str:
    """A key as lists show it."""
    return cut(shown(content), _KEY_CHARACTERS)


def cut(text: str, most: int) -> str:
    """A text that is no longer than so many characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def in_json(content: bytes | None) -> Any:
    """Bytes for programs: a text, or `{"hex": "..."}` where they are no UTF-8."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"hex": content.hex()}
