"""A store of objects, or this machine's files, as obstore reaches them: by one set of settings.

The client of a store tries again what the store throttles, or does not answer. What fails then is
an OSError: by the system's number where the failure has one, else `StoreFailed`. What Arrow finds
wrong with the bytes of a file comes as neither.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

from keyrange.errors import error
from keyrange.options.value_parsers import duration_ms, int_between
from keyrange.storage.failure_text import text_of

# What a store raises, and what Arrow does of the bytes of a file.
FAILURES: Final = (OSError, ValueError, NotImplementedError)
# Settings of the client, as obstore names them behind what a cloud's begin with; all others are of
# the store.
_OF_CLIENT: Final = re.compile(
    r"(?:(?:aws|azure|google)_)?(allow_http|allow_invalid_certificates|connect_timeout"
    r"|default_content_type|http[12]_.*|pool_.*|proxy_.*|root_certificate|randomize_addresses"
    r"|read_timeout|timeout|user_agent)"
)
# Settings by which delta-rs makes up for stores without a conditional put, and obstore has no use.
_OF_DELTA_RS: Final = re.compile(
    r".*(locking_provider|allow_unsafe_rename|dynamo.*|copy_if_not_.*)|backoff_config\..*"
)
_RETRIES: Final = {"max_retries": 10, "retry_timeout": timedelta(seconds=30)}
_OF_RETRIES: Final[Mapping[str, Callable[[str], Any]]] = {
    "max_retries": int_between(0, 2**31 - 1),
    "retry_timeout": lambda value: timedelta(milliseconds=duration_ms(value)),
}
# What obstore says of a value that it does not take.
_NO_VALUE: Final = "Generic Config error"
_SYSTEM_ERROR: Final = re.compile(r"\(os error (\d+)\)")


class StoreFailed(OSError):
    """A store that refused, or did not answer."""


def is_unanswered(failure: BaseException) -> bool:
    """Whether a store or a disk has failed, or refused: of the file itself nothing is known then.
    What Arrow says of the bytes of a file is an OSError without a number."""
    if not isinstance(failure, OSError) or isinstance(failure, FileNotFoundError):
        return False
    return isinstance(failure, StoreFailed) or failure.errno is not None


@contextmanager
def failing_as(name: str, what: str, **where: object) -> Iterator[None]:
    """What a store raises, and Arrow of the bytes of a file, as an error of the catalogue."""
    try:
        yield
    except FAILURES as failure:
        raise error(name, f"{what}: {failure}", **where) from None


def let_go(*files: Any) -> None:
    """Close what of a file is open that will not be finished: its writer, then its stream. Whatever
    that raises would hide why the file is not finished: Arrow's writer of Parquet raises a
    RuntimeError when the disk is full."""
    for each in files:
        if each is not None:
            with suppress(Exception):
                each.close()


class Ranges:
    """A file of a store for Arrow, which takes ranges of it."""

    def __init__(self, store: Any, path: str, size: int, settings: Mapping[str, str]) -> None:
        self._store, self._path, self._size = store, path, size
        self._settings = settings
        self._at = 0
        self.closed = False

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        with told(self._settings):
            found = bytes(self._store.get_range(self._path, start=self._at, end=end))
        self._at = end
        return found

    def close(self) -> None:
        self.closed = True


class Upload:
    """A file of a store for Arrow, which writes it from its beginning to its end."""

    def __init__(self, writer: Any, settings: Mapping[str, str]) -> None:
        self._writer, self._settings = writer, settings
        self.closed = False

    def write(self, data: bytes) -> int:
        with told(self._settings):
            return int(self._writer.write(bytes(data)))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with told(self._settings):
                self._writer.close()


def open_store(uri: str, settings: Mapping[str, str]) -> Any:
    """Raises ValueError for a URI of no store, INVALID_OPTIONS."""
    from obstore.exceptions import BaseError, UnknownConfigurationKeyError
    from obstore.store import from_url

    # What is given of the client stands for all that the environment says of it.
    of_client: dict[str, Any] = {"user_agent": "keyrange", **_of_client(os.environ)}
    of_client |= _of_client(settings)
    of_store, retries = {}, dict(_RETRIES)
    for name, value in settings.items():
        plain = name.lower()
        if plain in _OF_RETRIES:
            try:
                retries[plain] = _OF_RETRIES[plain](value)
            except ValueError as failure:
                raise error("INVALID_OPTIONS", f"option 'objectStore.{name}' {failure}") from None
        elif not (_OF_CLIENT.fullmatch(plain) or _OF_DELTA_RS.fullmatch(plain)):
            of_store[plain] = value
    opened: Any = from_url
    try:
        return opened(uri, config=of_store, client_options=of_client, retry_config=retries)
    except UnknownConfigurationKeyError as failure:
        raise error(
            "INVALID_OPTIONS", f"settings of the store: {text_of(failure, settings)}"
        ) from None
    except BaseError as failure:
        text = text_of(failure, settings)
        if text.startswith(_NO_VALUE):
            raise error("INVALID_OPTIONS", f"settings of the store: {text}") from None
        raise ValueError(f"{uri}: {text}") from None


def _of_client(settings: Mapping[str, str]) -> dict[str, str]:
    found = ((_OF_CLIENT.fullmatch(name.lower()), value) for name, value in settings.items())
    return {name[1]: value for name, value in found if name}


@contextmanager
def told(settings: Mapping[str, str]) -> Iterator[None]:
    """obstore's failures as OSErrors, without the secrets of a store's settings."""
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        yield
    except FileNotFoundError as failure:
        raise FileNotFoundError(errno.ENOENT, text_of(failure, settings)) from None
    except AlreadyExistsError as failure:
        raise FileExistsError(errno.EEXIST, text_of(failure, settings)) from None
    except BaseError as failure:
        # The text for people may be cut off before what tells failures apart.
        said, text = str(failure), text_of(failure, settings)
        if "NoSuchBucket" in said:
            raise FileNotFoundError(errno.ENOENT, text) from None
        number = _SYSTEM_ERROR.search(said)
        if number is not None:
            raise OSError(int(number[1]), text) from None
        raise StoreFailed(text) from None
