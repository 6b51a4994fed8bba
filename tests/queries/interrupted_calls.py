"""Calls that are interrupted at any line of keyrange's own code, as Ctrl+C and an alarm do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from keyrange.consumer import api

_OWN = str(Path(api.__file__).parent)


def interrupted(
    call: Callable[[], object],
    at: int,
    by: type[BaseException] = KeyboardInterrupt,
    own: tuple[str, ...] = (_OWN,),
) -> str:
    """Interrupt a call at the line that it comes to as number `at`, of the consumer's or of files
    that are `own`, as their paths begin; which line that is, "" where it comes to none."""
    left, where = at, ""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left, where
        if not frame.f_code.co_filename.startswith(own):
            return None
        if event == "line":
            left -= 1
            if left < 0 and not where:
                where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise by
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except by:
        assert where
    finally:
        sys.settrace(before)
    return where
