"""`keyrange state serve`: who is answered, and with what."""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commands.commanding import refusal
from commands.documents import read_document
from keyrange.cli.http_server import ADDRESS, LocalServer, Request, on_one_core
from keyrange.cli.state.serve import StateAnswers
from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.table.commit_admin import Commits
from keyrange.individual_commits.table.open_state import StatePlace
from keyrange.jobs.state_reader import StateReader
from keyrange.keyed_state.model.state_runs import after_batch
from keyrange.keyed_state.states_of_task import PartitionRuns, StateSettings, TaskStates
from keyrange.keyed_state.variables import StateForm, ValueState, variables_of
from keyrange.model.key_ranges import SPACE, hash_of
from keyrange.model.offsets import TopicPartition
from tables.commit_tables import MemoryCommitTable

FORM = StateForm(variables_of({"total": ValueState("n long")}))
TOKEN = "a token of some length"
ARROW = "application/vnd.apache.arrow.stream"
KEYS = [b"a", b"a/b", b"b", b"\xff\x00"]


def written(home: Path, partition: int, keys: list[bytes]) -> Any:
    """The runs of a partition whose keys have their place in the list as state."""
    at = TopicPartition("t", partition)
    states = TaskStates(FORM, StateSettings(str(home), "source", 0, 1))
    states.begin({at: PartitionRuns((SPACE,), (), True, "p")})
    rows = [
        {"key_hash": hash_of(key), "key": key, "total": {"n": number}}
        for number, key in enumerate(keys)
    ]
    states.change(at, pa.RecordBatch.from_pylist(rows, FORM.schema))
    return at, tuple(after_batch([], [run for _, run in states.finish()], 1))


@pytest.fixture
def reader(tmp_path: Path) -> StateReader:
    runs = dict([written(tmp_path, 0, KEYS), written(tmp_path, 1, [b"b"])])
    table = MemoryCommitTable("source")
    states = {at: fresh("", 1) for at in runs}
    named = ("g", "source", "q", "r", 1, 1)
    table.append(Commit(1, CommitKind.BATCH, *named, states=states, runs=runs))
    commits = Commits("commits", "source", table)
    return StateReader(lambda _: commits, StatePlace(str(tmp_path), {}, None))


def served(reader: StateReader, token: str | None = None) -> Iterator[LocalServer]:
    answer = StateAnswers("/lake/commits", reader).answer
    with LocalServer(0, answer, token=token, open_paths=frozenset({"/"})) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join(120)


@pytest.fixture
def server(reader: StateReader) -> Iterator[LocalServer]:
    yield from served(reader)


@pytest.fixture
def guarded(reader: StateReader) -> Iterator[LocalServer]:
    yield from served(reader, TOKEN)


def ask(
    server: LocalServer, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(ADDRESS, server.server_port, timeout=120)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET" if body is None else "POST", path, body, named)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def document(server: LocalServer, path: str, body: bytes | None = None) -> Any:
    status, answer = ask(server, path, body)
    assert status in (200, 404), answer
    return read_document(answer.decode())


@pytest.mark.parametrize("path", ["/keys/b", "/scan?prefix=b", "/status"])
def test_an_answer_is_not_older_than_the_commit_that_it_names(
    reader: StateReader, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shown moves on while it is asked."""
    seqs = iter([1, 2])
    asked = []

    def then(name: str) -> None:
        whole = getattr(StateReader, name)

        def ask(*given: Any, **named: Any) -> Any:
            asked.append(next(seqs))
            return whole(*given, **named)

        monkeypatch.setattr(StateReader, name, ask)

    for name in ("get_all", "scan", "sizes"):
        then(name)
    monkeypatch.setattr(StateReader, "seq", property(lambda _: next(seqs)))
    answer = StateAnswers("/lake/commits", reader).answer(Request(path))
    assert (json.loads(answer.body)["seq"], asked) == (1, [2])


def test_a_key_in_the_partitions_that_have_it(server: LocalServer) -> None:
    found = document(server, "/keys/b")
    states = [(each["partition"], each["state"]) for each in found["states"]]
    assert states == [(0, {"total": 2}), (1, {"total": 0})]
    [only] = document(server, "/keys/b?partition=t-1&variables=total")["states"]
    assert only["state"] == {"total": 0}
    # What a path needs to be told otherwise, and bytes that are no text.
    assert document(server, "/keys/a%2Fb")["states"][0]["state"] == {"total": 1}
    for path in ("/keys/hex:ff00", "/keys/%FF%00"):
        found = document(server, path)
        assert (found["key"], found["states"][0]["state"]) == ({"hex": "ff00"}, {"total": 3})
    status, _ = ask(server, "/keys/none")
    assert status == 404
    assert document(server, "/keys/none")["states"] == []


def test_many_keys_and_keys_in_their_order(server: LocalServer) -> None:
    asked = json.dumps({"keys": ["b", "a", "none"]}).encode()
    rows = [(each["partition"], each["key"]) for each in document(server, "/keys", asked)["rows"]]
    assert sorted(rows) == [(0, "a"), (0, "b"), (1, "b")]
    rows = document(server, "/scan?prefix=a&limit=10")["rows"]
    assert [each["key"] for each in rows] == ["a", "a/b"]
    assert len(document(server, "/scan?prefix=%FF")["rows"]) == 1
    rows = document(server, "/scan?from=a/&until=hex:ff&limit=2")["rows"]
    assert [(each["key"], each["partition"]) for each in rows] == [("a/b", 0), ("b", 0)]


def test_arrow_is_answered_where_it_is_asked_for(server: LocalServer) -> None:
    for path, body in (("/scan", None), ("/keys/b", None), ("/keys", b'{"keys": ["b"]}')):
        status, answer = ask(server, path, body, Accept=ARROW)
        assert status == 200
        table = pa.ipc.open_stream(answer).read_all()
        assert table.column("total").combine_chunks().field("n").to_pylist()[-1] is not None
        assert table.filter(pa.compute.equal(table.column("key"), b"b")).num_rows == 2


def test_what_it_is_of(server: LocalServer) -> None:
    told = document(server, "/status")
    assert (told["table"], told["seq"]) == ("/lake/commits", 1)
    shown = [(each["partition"], each["rows"], each["position"]) for each in told["partitions"]]
    assert shown == [(0, 4, 1), (1, 1, 1)]
    status, page = ask(server, "/")
    assert status == 200
    assert b"Content-Security-Policy" in page


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/scan?limit=0", None, "limit is a number from 1 to 100000"),
        ("/scan?prefix=hex:xy", None, "what follows hex: is no hex"),
        ("/keys/null", None, "records without a key have no state"),
        ("/keys/b?partition=t", None, "partition is TOPIC-NUMBER"),
        ("/keys/b?partition=%FF-0", None, "know of no partition"),
        ("/keys/b?partition=t-9", None, "know of no partition t-9; they know of: t-0, t-1"),
        (
            "/keys/b?part=t-1",
            None,
            "/keys takes no 'part': its parameters are partition, variables",
        ),
        ("/scan?prefx=a", None, "are prefix, from, until, limit, partition, variables"),
        ("/scan?variables=totl", None, "no variable 'totl'; there are: total"),
        ("/status?seq=1", None, "it has no parameters"),
        ("/keys", b"[]", 'the body is {"keys": ["...", ...]}'),
        ("/keys", b'{"keys": "b"}', 'the body is {"keys": ["...", ...]}'),
        ("/keys", b'{"keys": {"b": 1}}', 'the body is {"keys": ["...", ...]}'),
        ("/keys", b'{"keys": [1]}', 'the body is {"keys": ["...", ...]}'),
        ("/keys", b"[" * 200_000, 'the body is {"keys": ["...", ...]}'),
        ("/keys", b'{"keys": [' + b"9" * 5_000 + b"]}", 'the body is {"keys": ["...", ...]}'),
        ("/scan?limit=" + "9" * 5_000, None, "limit is a number from 1 to 100000"),
        ("/scan?limit=%D9%A3", None, "limit is a number from 1 to 100000"),
        ("/keys/b?partition=t-" + "9" * 5_000, None, "partition is TOPIC-NUMBER"),
    ],
)
def test_a_request_that_means_nothing_is_told_why(
    server: LocalServer, path: str, body: bytes | None, text: str
) -> None:
    status, answer = ask(server, path, body)
    assert status == 400
    assert text in answer.decode()


def test_a_reader_tells_what_is_not_there_from_keys_without_state(
    reader: StateReader, tmp_path: Path
) -> None:
    assert reader.get("none", ("t", 1)) is None
    for partition in (("pay", 0), ("t", 9)):
        with pytest.raises(KeyrangeError, match=r"INVALID_OPTIONS.*know of no partition"):
            reader.get("b", partition)
        with pytest.raises(KeyrangeError, match=r"INVALID_OPTIONS.*know of no partition"):
            reader.get_many(["a", "b"], partition)
    with pytest.raises(KeyrangeError, match=r"INVALID_OPTIONS.*a key is bytes, or a text.* no int"):
        reader.get(7)  # type: ignore[arg-type]
    table = MemoryCommitTable("source")
    named = ("g", "source", "q", "r", 1, 1)
    states = {TopicPartition("t", 0): fresh("", 1)}
    table.append(Commit(1, CommitKind.BATCH, *named, states=states))
    commits = Commits("commits", "source", table)
    other = StateReader(lambda _: commits, StatePlace(str(tmp_path), {}, None))
    for ask_for in (other.get, other.scan):
        with pytest.raises(KeyrangeError, match=r"NO_STATE.*the commits name no state at commit 1"):
            ask_for("b")


def test_nothing_is_written_and_nothing_else_is_there(server: LocalServer) -> None:
    assert ask(server, "/keys/b", b"{}")[0] == 405
    assert ask(server, "/../etc/passwd")[0] == 404
    assert ask(server, "/status", Host="evil.example")[0] == 403


def test_who_has_no_token_sees_the_page_alone(guarded: LocalServer) -> None:
    assert ask(guarded, "/")[0] == 200
    for path, body in (("/status", None), ("/keys/b", None), ("/keys", b'{"keys": ["b"]}')):
        assert ask(guarded, path, body)[0] == 401
        assert ask(guarded, path, body, Authorization="Bearer another")[0] == 401
        assert ask(guarded, path, body, Authorization=f"Bearer {TOKEN}")[0] == 200
    assert ask(guarded, "/", b"{}")[0] == 401


@pytest.mark.parametrize("length", ["", "-1", "x", "\xb2", "9" * 5_000])
def test_a_token_comes_before_the_length_of_a_body(guarded: LocalServer, length: str) -> None:
    for headers, status in (({}, 401), ({"Authorization": f"Bearer {TOKEN}"}, 413)):
        assert ask(guarded, "/keys", b"{}", Content_Length=length, **headers)[0] == status


def test_a_body_without_a_token_is_not_waited_for(guarded: LocalServer) -> None:
    assert ask(guarded, "/keys", b"{}", Content_Length="100000")[0] == 401


def test_another_address_needs_a_token(tmp_path: Path) -> None:
    served_at = ("state", "serve", tmp_path / "commits", "--address", "192.0.2.1", "--port", "0")
    assert "give --token-file" in refusal(*served_at)
    token = tmp_path / "token"
    token.write_text("short")
    assert "16 characters at least" in refusal(*served_at, "--token-file", token)


def test_what_cannot_be_read_is_said(
    server: LocalServer, reader: StateReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise error("STATE_GONE", "a file of states that a commit names is gone", path="x")

    monkeypatch.setattr(reader, "get_all", gone)
    status, answer = ask(server, "/keys/b")
    assert status == 503
    assert b"[STATE_GONE]" in answer


def test_threads_that_answer_share_one_processor_and_others_do_not() -> None:
    before = os.sched_getaffinity(0)
    found: list[set[int]] = []
    with on_one_core():
        thread = threading.Thread(target=lambda: found.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
        assert found == [os.sched_getaffinity(0)]
    assert len(found[0]) == 1
    assert os.sched_getaffinity(0) == before
