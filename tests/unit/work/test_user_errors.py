"""What is kept of an exception of a user's function, and where it was raised."""

import json
import linecache
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from keyrange.work import user_errors
from keyrange.work.user_errors import ERROR_BYTES_MAX, FRAMES_MAX, said_of


def in_file(path: str, function: FunctionType) -> Callable[..., Any]:
    """The function as if it were in line 1 of another file."""
    code = function.__code__.replace(co_filename=path, co_firstlineno=1)
    return FunctionType(code, {**function.__globals__}, function.__name__, None, None)


def raised(function: Callable[..., Any], *arguments: Any) -> BaseException:
    """What a function raises, as keyrange sees it: without the frame of who has called."""
    with pytest.raises(Exception) as found:
        function(*arguments)
    trace = found.value.__traceback__
    assert trace is not None
    return found.value.with_traceback(trace.tb_next)


def parse(text: str) -> Any:
    return json.loads(text)


def price(text: str) -> Any:
    return parse(text)


def dive(left: int) -> None:
    if not left:
        raise ValueError("\u00e4" * 9000)
    globals()["dive"](left - 1)


def test_the_place_is_the_last_frame_of_the_user_and_not_of_a_library() -> None:
    said = said_of(raised(in_file("/jobs/prices.py", parse), "{"))
    assert said.text is not None
    assert said.text.startswith("JSONDecodeError: ")
    assert said.text.endswith(" (prices.py, line 2, in parse)")
    assert said.frames[0] == "prices.py, line 2, in parse"
    assert said.frames[-1].startswith("decoder.py, line ")


def test_a_function_of_an_installed_package_is_the_place() -> None:
    function = in_file(f"{user_errors._LIBRARIES[0]}/prices/code.py", price)
    function.__globals__["parse"] = in_file(f"{user_errors._LIBRARIES[0]}/more/code.py", parse)
    assert (said_of(raised(function, "{")).text or "").endswith(" (code.py, line 2, in price)")


def test_an_error_of_keyrange_itself_has_no_place() -> None:
    said = said_of(raised(user_errors.bounded, None))
    assert said == user_errors.said("AttributeError: 'NoneType' object has no attribute 'encode'")


def test_text_and_frames_are_bounded_and_no_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linecache, "updatecache", lambda *_: pytest.fail("reads a file"))
    function = in_file(f"/jobs/{'d' * 300}.py", dive)
    function.__globals__["dive"] = function
    said = said_of(raised(function, 50))
    assert len(said.frames) == FRAMES_MAX
    assert all(len(each.encode()) <= 255 for each in said.frames)
    assert len((said.text or "").encode()) <= ERROR_BYTES_MAX
