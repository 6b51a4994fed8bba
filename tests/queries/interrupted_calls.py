"""Calls of a consumer that are interrupted at any line of its own code, as Ctrl+C does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from keyrange.consumer import api

_OWN = str(Path(api.__file__).parent)


def interrupted(
    call: Callable[[], object], at: int, by: type[BaseException] = KeyboardInterrupt
) -> str:
    """Interrupt a call at the line of the consumer's that it comes to as number `at`; which line
    that is, "" where it comes to none."""
    left, where = at, ""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left, where
        if not frame.f_code.co_filename.startswith(_OWN):
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
