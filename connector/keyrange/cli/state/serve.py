"""`keyrange state serve`: the state of keys over HTTP, to be read and not written.

Rule of this file: it turns requests into calls of a `StateReader`, and its answers into documents
as commands print them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import typer

from keyrange.cli.commits.commit_source import OfSource, TableArgument, named_group
from keyrange.cli.http_server import (
    ADDRESS,
    Answer,
    Request,
    number_in,
    on_one_core,
    serving,
    text_answer,
)
from keyrange.cli.render import document_of
from keyrange.cli.source_options import named_options
from keyrange.cli.state.verify import jsonable, state_row
from keyrange.cli.values import in_json, read_key
from keyrange.errors import KeyrangeError, invalid_options
from keyrange.model.offsets import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.jobs.state_reader import StateReader

_ARROW: Final = "application/vnd.apache.arrow.stream"
_LIMIT: Final = 100
_LIMIT_MAX: Final = 100_000
_KEYS: Final = "/keys/"
# Bytes of a key that are no UTF-8, as `read_key` takes them.
_AS_BYTES: Final = "surrogateescape"
# What may be asked for behind ?, by path: another name would be passed over.
_ASKED: Final = {
    "/status": (),
    "/keys": ("partition", "variables"),
    "/scan": ("prefix", "from", "until", "limit", "partition", "variables"),
}
_PATHS: Final = "there are /, /status, /keys/KEY, POST /keys and /scan"


def serve(
    table: TableArgument,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where to serve it; 0: any port that is free.")
    ] = 8700,
    address: Annotated[
        str, typer.Option(help="The address to serve at. Another than 127.0.0.1 needs a token.")
    ] = ADDRESS,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token that requests have to bring as their bearer."),
    ] = None,
    copies: Annotated[
        Path | None,
        typer.Option(
            help="A directory for copies of the state; without it those of executors are shared."
        ),
    ] = None,
    *,
    of: OfSource,
) -> None:
    """Serve the state that a job keeps for keys, as it is committed, until Ctrl-C.

    GET /keys/KEY is the state of a key, POST /keys that of {"keys": [...]}, GET
    /scan?prefix=&from=&until=&limit= that of keys in their order, and GET /status says which commit
    it is of. Answers are JSON, that of a key as `state get` has it, or Arrow where Accept asks for
    application/vnd.apache.arrow.stream. / is a page for people. Nothing is written.
    """
    from keyrange.jobs.state_reader import state_reader

    token = _token(token_file, address)
    named = named_options("", "", of.option)
    options = {name: value for name, value in named.items() if not name.startswith("kafka.")}
    group = named_group(named, of.group)
    reader = state_reader(table, group=group, source=of.source, options=options, copies=copies)
    with reader:
        state = StateAnswers(table, reader)
        # The page asks who looks at it for the token.
        with serving(port, state.answer, address, token, frozenset({"/"})) as run, on_one_core():
            run()


def _token(file: Path | None, address: str) -> str | None:
    if file is None:
        if address != ADDRESS:
            raise invalid_options(
                f"--address {address} is served to who has a token alone: give --token-file"
            )
        return None
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as failure:
        raise invalid_options(f"--token-file cannot be read: {failure}") from None
    if len(token) < 16:
        raise invalid_options("--token-file: a token has 16 characters at least")
    return token


class _Refused(Exception):
    """A request that means nothing."""


class StateAnswers:
    """Answers requests about the state of a table's commits."""

    def __init__(self, table: str, reader: StateReader) -> None:
        self._table, self._reader = table, reader
        page = files("keyrange.cli.state").joinpath("page.html").read_bytes()
        self._by_path: dict[str, Callable[[Mapping[str, str], Request], Answer]] = {
            "/": lambda *_: Answer(page, "text/html; charset=utf-8"),
            "/status": self._status,
            "/scan": self._scan,
        }

    def answer(self, request: Request) -> Answer:
        asked = urlsplit(request.path)
        query = dict(parse_qsl(asked.query, keep_blank_values=True, errors=_AS_BYTES))
        try:
            _check_names("/keys" if asked.path.startswith(_KEYS) else asked.path, query)
            if request.body is not None:
                if asked.path == "/keys":
                    return self._keys(query, request)
                return text_answer("nothing is written here", HTTPStatus.METHOD_NOT_ALLOWED)
            if asked.path.startswith(_KEYS):
                key = unquote(asked.path[len(_KEYS) :], errors=_AS_BYTES)
                return self._key(key, query, request)
            if asked.path in self._by_path:
                return self._by_path[asked.path](query, request)
            return text_answer(_PATHS, HTTPStatus.NOT_FOUND)
        except _Refused as refused:
            return text_answer(str(refused), HTTPStatus.BAD_REQUEST)
        except KeyrangeError as failure:
            is_asked_wrongly = failure.condition.name == "INVALID_OPTIONS"
            status = HTTPStatus.BAD_REQUEST if is_asked_wrongly else HTTPStatus.SERVICE_UNAVAILABLE
            return text_answer(str(failure), status)

    def _status(self, _: Mapping[str, str], __: Request) -> Answer:
        told = self._told()
        partitions = [
            {**at._asdict(), "rows": rows, "bytes": size, "position": position}
            for at, rows, size, position in self._reader.sizes()
        ]
        return json_answer("state.status/1", {**told, "partitions": partitions})

    def _told(self) -> dict[str, Any]:
        """Asked before the state: what is shown may move on, and is never older than the commit
        that is named."""
        return {"table": self._table, "seq": self._reader.seq}

    def _key(self, text: str, query: Mapping[str, str], request: Request) -> Answer:
        key = _read_key(text)
        if _wants_arrow(request):
            return _arrow(self._reader.get_many([key], **_chosen(query)))
        told = self._told() | {"key": in_json(key)}
        found = self._reader.get_all(key, **_chosen(query))
        states = [{**at._asdict(), "state": jsonable(state)} for at, state in found.items()]
        status = HTTPStatus.OK if states else HTTPStatus.NOT_FOUND
        return json_answer("state.get/1", {**told, "states": states}, status)

    def _keys(self, query: Mapping[str, str], request: Request) -> Answer:
        try:
            told = json.loads(request.body or b"")["keys"]
            keys = [_read_key(each) for each in told] if isinstance(told, list) else None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            keys = None
        if keys is None:
            raise _Refused('the body is {"keys": ["...", ...]}')
        if len(keys) > _LIMIT_MAX:
            raise _Refused(f"there are {len(keys)} keys, and {_LIMIT_MAX} are the most")
        return self._rows(partial(self._reader.get_many, keys, **_chosen(query)), request)

    def _scan(self, query: Mapping[str, str], request: Request) -> Answer:
        limit = number_in(query.get("limit", str(_LIMIT)))
        if limit is None or not 0 < limit <= _LIMIT_MAX:
            raise _Refused(f"limit is a number from 1 to {_LIMIT_MAX}")
        bounds: dict[str, Any] = {
            name: _read_key(query[asked])
            for name, asked in (("from_key", "from"), ("until_key", "until"))
            if query.get(asked)
        }
        prefix = _read_key(query["prefix"]) if query.get("prefix") else b""
        scan = partial(self._reader.scan, prefix, **bounds, limit=limit, **_chosen(query))
        return self._rows(scan, request)

    def _rows(self, ask: Callable[[], pa.Table], request: Request) -> Answer:
        told, rows = self._told(), ask()
        if _wants_arrow(request):
            return _arrow(rows)
        return json_answer("state.rows/1", {**told, "rows": _state_rows(rows)})


def _check_names(path: str, query: Mapping[str, str]) -> None:
    taken = _ASKED.get(path, tuple(query))
    if unknown := [name for name in query if name not in taken]:
        names = f"its parameters are {', '.join(taken)}" if taken else "it has no parameters"
        raise _Refused(f"{path} takes no {unknown[0][:100]!r}: {names}")


def _read_key(text: str) -> bytes:
    try:
        key = read_key(text)
    except typer.BadParameter as failure:
        raise _Refused(str(failure.message).removeprefix("--")) from None
    if key is None:
        raise _Refused("records without a key have no state")
    return key


def _chosen(query: Mapping[str, str]) -> dict[str, Any]:
    """Of which partition and variables a request asks for state."""
    names = [name.strip() for name in query.get("variables", "").split(",")]
    return {"partition": _partition(query), "variables": [*filter(None, names)]}


def _partition(query: Mapping[str, str]) -> TopicPartition | None:
    told = query.get("partition")
    if not told:
        return None
    topic, _, text = told.rpartition("-")
    number = number_in(text)
    if not topic or number is None:
        raise _Refused("partition is TOPIC-NUMBER")
    return TopicPartition(topic, number)


def _state_rows(rows: pa.Table) -> list[dict[str, Any]]:
    from keyrange.individual_commits.table.keyed_state_rows import plain_rows
    from keyrange.keyed_state.variables import form_of

    form = form_of(rows.schema)
    assert form is not None
    found = []
    for batch in rows.to_batches():
        at = [batch.column(name).to_pylist() for name in ("topic", "partition")]
        for *place, (key, state) in zip(*at, plain_rows(batch, form), strict=True):
            found.append(state_row(TopicPartition(*place), key, state=state))
    return found


def _wants_arrow(request: Request) -> bool:
    return _ARROW in request.accept


def _arrow(rows: pa.Table) -> Answer:
    import pyarrow as pa

    data = pa.BufferOutputStream()
    with pa.ipc.new_stream(data, rows.schema) as stream:
        stream.write_table(rows)
    return Answer(data.getvalue().to_pybytes(), _ARROW)


def json_answer(
    schema: str, values: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK
) -> Answer:
    document = json.dumps(document_of(schema, values))
    return Answer(document.encode(), status=status)
