"""What commands say of a bucket that is not there, refuses, is gone, or does not answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from commands.commanding import run, succeed
from keyrange.storage.directory import Directory
from platforms.s3_server import S3Server
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch
from tables.numbered_logs import COMMITS

TABLE: Final = ("commits", "show", "s3://lake/commits")
CHECKPOINT: Final = ("checkpoint", "show", "s3://lake/checkpoint")
WATCH: Final = ("watch", "s3://lake/checkpoint", "--once", "--commits", "s3://lake/commits")
# What delta-rs and obstore are told, so that it does not take long.
SOON: Final = ("--option", "objectStore.max_retries=1")
TOKEN: Final = "t0ken/" * 100
SECRET: Final = "s3cret+s3cret"


@pytest.fixture(scope="module")
def lake(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> S3Server:
    """A bucket with a commit table and a checkpoint."""
    COMMITS.fill("s3://lake/commits")
    made = make_checkpoint(tmp_path_factory.mktemp("made") / "checkpoint")
    plan_batch(made, 0, 1000, {"0": 5})
    commit_batch(made, 0)
    checkpoint = Directory("s3://lake/checkpoint")
    for path in filter(Path.is_file, made.rglob("*")):
        checkpoint.write(str(path.relative_to(made)), path.read_bytes())
    return s3_server


@pytest.fixture(autouse=True)
def _faultless(lake: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    lake.set_faults()
    yield
    lake.set_faults()


def failure_of(*arguments: str) -> str:
    found = run(*arguments)
    assert found.exit_code == 1, (arguments, found.output, found.exception)
    text = f"{found.output}{found.exception}"
    assert SECRET not in text
    assert TOKEN[:12] not in text
    return text


@contextmanager
def silent_port() -> Iterator[int]:
    """Of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_they_show_what_is_there() -> None:
    for words in (TABLE, CHECKPOINT, WATCH):
        succeed(*words)


def test_a_bucket_that_is_not_there_is_no_missing_table() -> None:
    said = failure_of("commits", "show", "s3://pond/commits")
    assert "COMMITS_UNREADABLE" in said
    assert "NoSuchBucket" in said
    for words in (("checkpoint", "show"), ("watch", "--once")):
        said = failure_of(*words, "s3://pond/checkpoint")
        assert "[INVALID_CHECKPOINT_PATH]" in said
        assert "NoSuchBucket" in said


def test_a_key_that_is_not_there_is_a_missing_table() -> None:
    assert "there is no commit table at s3://lake/none" in failure_of(
        "commits", "show", "s3://lake/none"
    )
    said = failure_of("checkpoint", "show", "s3://lake/none")
    assert "[INVALID_CHECKPOINT_PATH] there is no checkpoint" in said


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("denied", "403 Forbidden"),
        ("expired", "ExpiredToken"),
        ("elsewhere", "incorrectly configured region"),
        ("reset", "Connection reset by peer"),
    ],
)
def test_a_store_that_refuses_is_told_with_the_settings_to_look_at(
    lake: S3Server, fault: str, told: str
) -> None:
    lake.set_faults(**{fault: 1.0, "most": 1 << 30})
    said = failure_of(*TABLE, *SOON)
    assert "[COMMITS_UNREADABLE]" in said
    assert told in said
    assert "AWS_* of the environment" in said
    for words in (CHECKPOINT, WATCH):
        said = failure_of(*words)
        assert "[CHECKPOINT_UNREADABLE]" in said
        assert told in said
        assert "AWS_* of the environment" in said


def test_a_server_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused_port()}")
    said = failure_of(*TABLE, *SOON)
    assert "Connection refused" in said
    said = failure_of(*CHECKPOINT)
    assert "[CHECKPOINT_UNREADABLE]" in said
    assert "Connection refused" in said


def test_a_command_does_not_wait_long_for_a_server_that_says_nothing(
    lake: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.set_faults(failing=1.0, most=1 << 30)
    assert "retry_timeout ↳ 20s" in failure_of(*TABLE, *SOON)
    with silent_port() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        soon = ("--option", "objectStore.timeout=1s")
        soon += ("--option", "objectStore.retry_timeout=1s")
        assert "operation timed out" in failure_of(*TABLE, *soon)
