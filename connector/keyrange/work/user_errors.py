"""What is kept of an error that a user's function raised: its text, and where in the program it was
raised, as files, lines and functions. Frames have no values."""

from __future__ import annotations

import asyncio
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Final

ERROR_BYTES_MAX: Final = 4096
FRAMES_MAX: Final = 20
# What a function raises that makes its record a rejected one: a function that calls exit() would
# end the worker again and again, and what a cancelled task of asyncio raises is no Exception.
FAILURES: Final = (Exception, SystemExit, asyncio.CancelledError)

_OURS: Final = str(Path(__file__).resolve().parents[1])
_LIBRARIES: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


@dataclass(frozen=True, slots=True)
class Said:
    """Why a record is not done. `frames`, outermost first: "prices.py, line 12, in price"."""

    text: str | None
    frames: tuple[str, ...] = ()


NOTHING: Final = Said(None)


def said(text: str) -> Said:
    """What keyrange itself says of a record."""
    return Said(bounded(text))


def said_of(failure: BaseException) -> Said:
    """What is kept of an exception."""
    kind = type(failure).__name__
    try:
        text = str(failure)
    except FAILURES:
        text = ""
    return _placed(f"{kind}: {text}" if text else kind, failure)


def overtime(failure: BaseException, timeout_ms: float | None) -> Said:
    """What is kept of a function that was interrupted, and where it was then."""
    return _placed(f"RecordTimeout: it took longer than {round(timeout_ms or 0)} ms", failure)


def bounded(text: str, room: int = ERROR_BYTES_MAX) -> str:
    """An error's text of at most `room` bytes."""
    return text.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")


def _placed(text: str, failure: BaseException) -> Said:
    # A traceback's own summary asks the disk for each file, which many failing records pay.
    found = [(frame.f_code, line) for frame, line in traceback.walk_tb(failure.__traceback__)]
    frames = [each for each in found if not each[0].co_filename.startswith(_OURS)]
    if not frames:
        return said(text)
    # A user's package may be installed beside all others: then it is where the function is.
    own = [each for each in frames if not each[0].co_filename.startswith(_LIBRARIES)]
    place = f" ({_text(*(own or frames[:1])[-1])})"
    whole = bounded(text, ERROR_BYTES_MAX - len(place.encode())) + place
    return Said(whole, tuple(_text(*each) for each in frames[-FRAMES_MAX:]))


def _text(code: CodeType, line: int | None) -> str:
    return bounded(f"{Path(code.co_filename).name}, line {line}, in {code.co_name}", 255)
