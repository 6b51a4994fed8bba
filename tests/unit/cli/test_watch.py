"""`keyrange watch` from outside: terminal and pipe, its lines and its screen, how it ends."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from commands import commanding
from commands.documents import read_document
from keyrange.cli.watch.view import (
    all_read_text,
    commit_lag_text,
    failure_text,
    line,
    rate_text,
    read_lag_text,
    screen,
)
from keyrange.errors import CATALOGUE
from keyrange.observing.progress_file import ProgressFile
from keyrange.text.formats import short
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch
from samples.progresses import progress, source


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A query of 30 partitions whose second batch is under way."""
    made = make_checkpoint(tmp_path / "cp")
    now_ms = int(time.time() * 1000)
    for batch in range(2):
        ends = {str(number): 10 * (batch + 1) for number in range(30)}
        plan_batch(made, batch, now_ms - 20_000 + 10_000 * batch, ends)
    commit_batch(made, 0)
    return made


def told(home: Path, name: str = "orders") -> Path:
    """A progress file of its first batch."""
    ends = {str(number): 10 for number in range(30)}
    latest = {str(number): 10 + number for number in range(30)}
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - 20))
    path = home.parent / "p.jsonl"
    ProgressFile(path).append(
        progress(0, source(ends, latest, records=300), name=name, timestamp=at)
    )
    return path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "keyrange.cli.main", "watch", *map(str, arguments)]


def test_once_prints_the_whole_view(home: Path) -> None:
    shown = commanding.text("watch", home, "--once", "--progress", told(home))
    lines = shown.splitlines()
    assert lines[0].split() == ["working", "orders", str(home)]
    assert "\x1b" not in shown
    assert len([each for each in lines if each.startswith("t-")]) == 30
    first = next(each for each in lines if each.startswith("t-"))
    assert first.split() == ["t-29", "10", "39", "29", "#" * 16]
    assert logging.getLogger("keyrange").level == logging.NOTSET, "what it held back is let go"


@pytest.mark.parametrize("output", ["text", "json"])
def test_once_ends_with_1_where_something_did_not_answer(home: Path, output: str) -> None:
    """All else is there, and what did not answer is named with what mends it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    given = ["--bootstrap-servers", nobody, "--progress", str(told(home)), "--output", output]
    given += ["--option", "kafka.default.api.timeout.ms=1000"]
    result = commanding.run("watch", home, "--once", *given)
    assert result.exit_code == 1, result.output
    assert "[BROKER_UNREACHABLE]" in result.stdout
    assert f"To mend it: {CATALOGUE['BROKER_UNREACHABLE'].remedy}." in result.stdout
    assert "t-29" in result.stdout or '"partition": 29' in result.stdout


@pytest.mark.ordinary
def test_json_is_a_document_a_line(home: Path) -> None:
    process = subprocess.Popen(
        command(home, "--output", "json", "--interval", "50ms"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    documents = [read_document(process.stdout.readline()) for _ in range(3)]
    assert [each["batch"]["last_planned"] for each in documents] == [1, 1, 1]
    commit_batch(home, 1)
    deadline = time.monotonic() + 60
    while documents[-1]["batch"]["last_committed"] != 1:
        assert time.monotonic() < deadline
        documents.append(read_document(process.stdout.readline()))
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert process.stderr.read() == b""


@pytest.mark.ordinary
def test_a_pipe_gets_a_plain_line_an_interval(home: Path) -> None:
    process = subprocess.Popen(
        command(home, "--interval", "50ms"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines = [process.stdout.readline().decode() for _ in range(2)]
    for each in lines:
        assert re.match(r"\d\d:\d\d:\d\d, working, batch 1 under way for \d+ s, ", each)
        assert "\x1b" not in each
    # A checkpoint that is gone is said, and it goes on.
    (home / "metadata").unlink()
    deadline = time.monotonic() + 60
    while "checkpoint: [INVALID_CHECKPOINT_PATH]" not in lines[-1]:
        assert time.monotonic() < deadline
        lines.append(process.stdout.readline().decode())
    assert ", unknown, batch 1 under way" in lines[-1]
    assert f"To mend it: {CATALOGUE['INVALID_CHECKPOINT_PATH'].remedy}." in lines[-1]
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert process.stderr.read() == b""


def on_a_terminal(arguments: list[str], number: int, until: bytes) -> tuple[int, bytes]:
    """Run in a terminal of 24 lines until it shows something, then send a signal; the exit code and
    all that it wrote."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        arguments,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=os.environ | {"TERM": "xterm"},
        start_new_session=True,
    )
    os.close(follower)
    written = b""
    deadline = time.monotonic() + 60
    try:
        while until not in written:
            assert time.monotonic() < deadline, written
            written += os.read(leader, 65_536)
        process.send_signal(number)
        while True:
            try:
                written += os.read(leader, 65_536)
            except OSError:
                break
        return process.wait(120), written
    finally:
        process.kill()
        os.close(leader)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.ordinary
def test_a_terminal_gets_a_view_and_is_given_back(home: Path, number: int, code: int) -> None:
    found, written = on_a_terminal(
        command(home, "--interval", "100ms", "--progress", told(home)), number, b"less behind"
    )
    assert found == code
    # Into the alternate screen, the cursor hidden; and back out of it.
    assert written.index(b"\x1b[?1049h") < written.index(b"\x1b[?25l")
    assert written.rindex(b"\x1b[?1049l") > written.rindex(b"\x1b[?1049h")
    assert written.rindex(b"\x1b[?25h") > written.rindex(b"\x1b[?25l")
    assert b"Traceback" not in written
    after = written[written.rindex(b"\x1b[?1049l") :]
    assert b"working" in after, "the last look stays"
    assert b"Ctrl-C" not in after


@pytest.mark.ordinary
def test_a_wrong_place_or_interval_is_said_at_once(tmp_path: Path) -> None:
    for arguments, code, text in (
        ([tmp_path / "none"], 1, "[INVALID_CHECKPOINT_PATH]"),
        ([tmp_path, "--interval", "soon"], 2, "--interval"),
        ([tmp_path, "--option", "nope=1"], 1, "[INVALID_OPTIONS]"),
    ):
        result = subprocess.run(
            command(*arguments), capture_output=True, text=True, check=False, timeout=120
        )
        assert (result.returncode, result.stdout) == (code, "")
        assert text in result.stderr


def document(home: Path, name: str = "orders") -> dict[str, Any]:
    arguments = ("watch", home, "--once", "--progress", told(home, name))
    found: dict[str, Any] = commanding.document(*arguments)
    return found


@pytest.mark.parametrize("size", [(80, 24), (60, 12), (200, 60), (40, 8)])
def test_the_screen_fits_the_terminal(home: Path, size: tuple[int, int]) -> None:
    width, height = size
    console = Console(file=StringIO(), width=width, height=height, force_terminal=True)
    with console.capture() as captured:
        console.print(screen(console, document(home)))
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", captured.get()).splitlines()
    assert max(map(len, lines)) <= width
    shown = [each for each in lines if each.startswith("t-")]
    assert shown[0].startswith("t-29 ")
    assert len(shown) == 30 or "that are less behind" in lines[-1]
    if height >= 24:
        assert len(lines) in (height - 1, len(lines) if len(shown) == 30 else height - 1)
        assert len(lines) < height


def test_what_others_wrote_moves_no_cursor_and_is_no_markup(home: Path) -> None:
    found = document(home, name="[red]or\x1b[2Jders")
    found["why"], found["checkpoint"] = ["a \x1b[31m reason [/red]"], "[bold]\x07"
    console = Console(file=StringIO(), width=200, height=30, force_terminal=False)
    with console.capture() as captured:
        console.print(screen(console, found))
    assert "\x1b" not in captured.get()
    assert "\x07" not in captured.get()
    assert r"[red]or\u001b[2Jders" in captured.get()
    assert "[bold]" in captured.get()
    assert "\x1b" not in line(found)


LAG = {
    "read": 1_200,
    "commit": 1_300,
    "known_by": "now",
    "age_ms": 100,
    "shrinks_per_s": 10.0,
    "all_read_in_ms": 120_000,
    "least_ms": 60_000,
    "most_ms": 240_000,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "all read in about 2 min (1 min to 4 min)"),
        ({"most_ms": None}, "all read in about 2 min (1 min to never)"),
        ({"least_ms": 120_000, "most_ms": 120_400}, "all read in about 2 min"),
        (
            {"all_read_in_ms": None, "shrinks_per_s": -5.0},
            "all read in: - (the lag grows by 5/s)",
        ),
        (
            {"all_read_in_ms": None, "shrinks_per_s": 0.0},
            "all read in: - (the lag does not shrink)",
        ),
        ({"shrinks_per_s": None}, "all read in: not known yet"),
        ({"read": 0}, ""),
        ({"read": None}, ""),
    ],
)
def test_time_to_all_read_says_how_sure_it_is(change: dict[str, Any], expected: str) -> None:
    assert all_read_text(LAG | change) == expected


def test_lag_says_as_of_when() -> None:
    assert read_lag_text(LAG) == "1,200 (now)"
    assert read_lag_text(LAG | {"known_by": "batch"}) == "1,200 (as of the last batch)"
    assert read_lag_text(LAG | {"age_ms": 65_000}) == "1,200 (1 min ago)"
    assert read_lag_text(LAG | {"read": None}).startswith("not known: --bootstrap-servers")
    assert commit_lag_text(LAG) == "1,300"
    assert commit_lag_text(LAG | {"commit": None}) == "not known: --commits"
    assert commit_lag_text(LAG | {"read": None, "commit": None}) == "not known"


def test_rates_are_those_that_are_known() -> None:
    rate = {"over_ms": 60_000, "offsets_per_s": 5.0, "records_per_s": None, "bytes_per_s": None}
    rate |= {"not_moving_since": None}
    assert rate_text(rate) == "5 offsets/s over 1 min"
    assert rate_text(rate | {"offsets_per_s": None}) == "rate not known"
    still = {"not_moving_since": "2026-05-01T12:03:09.000+00:00"}
    assert rate_text(rate | still) == "not moving since 2026-05-01 12:03:09 UTC"
    told_rate = rate | {"records_per_s": 12_300.0, "bytes_per_s": 4_560_000.0}
    assert rate_text(told_rate) == "12,300 records/s, about 4.56 MB/s over 1 min"
    assert [short(each) for each in (5, 999, 1_000, 12_345, 5e9)] == [
        "5 ",
        "999 ",
        "1.00 k",
        "12.3 k",
        "5.00 G",
    ]


def test_a_failure_says_what_is_shown_instead() -> None:
    failure = {"source": "broker", "text": "no", "waiting_ms": 0, "age_ms": None}
    assert failure_text(failure) == "no"
    old = failure | {"age_ms": 61_000, "waiting_ms": 12_000}
    assert failure_text(old) == "no (shown is what was 1 min ago, asked again for 12 s)"
