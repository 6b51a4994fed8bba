"""What people get wrong, command by command: one paragraph that names it, and no traceback."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from deltalake import write_deltalake

from commands.command_words import COMMANDS
from commands.terminals import read_all
from keyrange.cli import main
from keyrange.embedded import daemon
from samples.member_samples import append_all, stored, table_at

# Nothing listens there: the port is one that no service has.
NOWHERE = "127.0.0.1:1"
WRONG_LINE, FAILED = 2, 1
SOON = "--option=kafka.request.timeout.ms=3000"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Places by name: what a person may name in place of what is meant."""
    import pyarrow as pa

    home = tmp_path_factory.mktemp("mistakes")
    (home / "empty").mkdir()
    (home / "text").write_text("no table and no checkpoint\n")
    (home / "bytes").write_bytes(b"\xff\xfe\x00")
    (home / "files").mkdir()
    (home / "files" / "notes").write_text("hello")
    bad = home / "badcheckpoint"
    (bad / "offsets").mkdir(parents=True)
    (bad / "metadata").write_text('{"id": "1"}')
    (bad / "offsets" / "0").write_text("v1\n{broken\n{}")
    write_deltalake(str(home / "foreign"), pa.table({"x": [1]}))
    append_all(table_at(home / "members"), [stored(1)])
    names = ("empty", "text", "bytes", "files", "badcheckpoint", "foreign", "members", "missing")
    return {name: str(home / name) for name in names}


TABLES = [
    *(("commits", command) for command in ("show", "gaps", "history", "verify")),
    ("deadletters", "list"),
    ("state", "show"),
    ("state", "list"),
    ("state", "verify"),
    ("members", "list"),
    ("members", "history"),
]
WHY = ("--why", "a test")
READ = ("--topic", "t", "--bootstrap-servers", "127.0.0.1:9")
# The words of a command, its exit code, and what it names. {name} stands for a place.
MISTAKES: list[tuple[tuple[str, ...], int, str]] = [
    *(
        ((*command, f"{{{place}}}"), FAILED, f"{{{place}}}")
        for command in TABLES
        for place in ("missing", "empty", "text", "files", "foreign")
    ),
    *(
        (("checkpoint", "show", f"{{{place}}}"), FAILED, f"{{{place}}}")
        for place in ("missing", "empty", "text", "files")
    ),
    *(
        ((noun, f"{{{place}}}"), FAILED, f"{{{place}}}")
        for noun in ("report", "watch")
        for place in ("missing", "empty", "text", "files")
    ),
    (("report", "{missing}", "--every", "soon"), WRONG_LINE, "--every"),
    (("report", "{missing}", "--option", "nope=1"), FAILED, "nope"),
    (("watch", "{missing}", "--interval", "soon"), WRONG_LINE, "--interval"),
    (("watch", "{missing}", "--option", "nope=1"), FAILED, "nope"),
    (("checkpoint", "show", "{badcheckpoint}"), FAILED, "batch 0"),
    (
        ("checkpoint", "show", "{foreign}"),
        FAILED,
        "a Delta table is in the place of the checkpoint",
    ),
    (("deadletters", "list", "{badcheckpoint}"), FAILED, "a checkpoint is at the place"),
    (("members", "list", "{badcheckpoint}"), FAILED, "a checkpoint is at the place"),
    (("checkpoint", "export", "{missing}"), FAILED, "INVALID_CHECKPOINT_PATH"),
    (("checkpoint", "show", "nosuch://place/at/all"), FAILED, "nosuch"),
    (("checkpoint", "show"), WRONG_LINE, "path"),
    (("commits", "show", "nosuch://place"), FAILED, "nosuch"),
    (("commits", "show", "relative/table"), FAILED, "relative/table"),
    (("commits", "reset", "{missing}", "--topic", "t", "--to", "3", *WHY), FAILED, "{missing}"),
    (
        ("commits", "reset", "{missing}", "--topic", "t", "--to", "3", "--why", " "),
        WRONG_LINE,
        "why",
    ),
    (("commits", "reset", "{missing}", "--topic", "t"), WRONG_LINE, "--to"),
    (("commits", "verify", "{missing}", "--columns", "a,b"), WRONG_LINE, "--columns"),
    (("commits", "show", "{missing}", "--option", "nope=1"), FAILED, "nope"),
    (("commits", "show", "{missing}", "--option", "nope"), FAILED, "NAME=VALUE"),
    (("commits", "show", "{missing}", "--option", "keys=@{missing}"), FAILED, "keys"),
    (("commits", "show", "{missing}", "--option", "keys=@{empty}"), FAILED, "keys"),
    (("commits", "show", "{missing}", "--option", "keys=@{bytes}"), FAILED, "UTF-8"),
    (("commits", "history", "{missing}", "--since", "yesterday"), FAILED, "{missing}"),
    (("commits", "show", "{missing}", "--partition", "x"), WRONG_LINE, "--partition"),
    (("state", "get", "{missing}"), WRONG_LINE, "--key"),
    (("state", "get", "{missing}", "--key", "k"), FAILED, "{missing}"),
    (("state", "history", "{foreign}", "--key", "k"), FAILED, "{foreign}"),
    (("state", "diff", "{missing}"), WRONG_LINE, "--from"),
    (("state", "verify", "{missing}", "--function", "no_such:count"), WRONG_LINE, "no_such"),
    (("state", "verify", "{missing}", "--function", "json:nope"), WRONG_LINE, "nope"),
    (("state", "verify", "{missing}", "--mode", "sql"), WRONG_LINE, "--mode"),
    (("state", "diff", "{missing}", "--from", "1"), FAILED, "{missing}"),
    (("state", "export", "{missing}", "--to", "{text}"), FAILED, "{missing}"),
    (("state", "import", "{missing}"), WRONG_LINE, "--from"),
    (("state", "import", "{missing}", "--from", "{text}"), WRONG_LINE, "--topic"),
    (("state", "import", "{missing}", "--from", "{missing}", *READ), FAILED, "{missing}"),
    (("state", "import", "{missing}", "--from", "{text}", *READ), FAILED, "{text}"),
    (("deadletters", "show", "{missing}"), WRONG_LINE, "TOPIC-PARTITION"),
    (("deadletters", "show", "{missing}", "orders-3"), WRONG_LINE, "orders-3:41207"),
    (("deadletters", "show", "{missing}", "t-3:7"), FAILED, "{missing}"),
    (("deadletters", "replay", "{missing}"), WRONG_LINE, "--all"),
    (("deadletters", "replay", "{missing}", "--all", *WHY), FAILED, "{missing}"),
    (("deadletters", "list", "{missing}", "--since", "yesterday"), WRONG_LINE, "--since"),
    (("members", "list", "{members}", "--live"), WRONG_LINE, "--bootstrap-servers"),
    (("members", "remove", "{members}", "nobody", *WHY), FAILED, "nobody"),
    (("members", "scale", "{members}", "0", *WHY), WRONG_LINE, "MEMBERS"),
    (("members", "rebalance", "{members}"), WRONG_LINE, "--why"),
    (("ranges", "owner", "--key", "a"), WRONG_LINE, "--topic"),
    (("ranges", "owner", "--key", "hex:zz", "--topic", "t"), WRONG_LINE, "hex"),
    (("ranges", "owner", "--key", "a", "--topic", "t", "--members", "{text}"), FAILED, "{text}"),
    (("ranges", "owner", "--key", "a", "--topic", "t"), FAILED, "kafka.bootstrap.servers"),
    (("ranges", "plan", "--topic", "t"), FAILED, "kafka.bootstrap.servers"),
    (("ranges", "plan", "--bootstrap-servers", NOWHERE), FAILED, "subscribe"),
    (("ranges", "plan", "--topic", "t", "--bootstrap-servers", "nowhere"), FAILED, "host:port"),
    (
        ("ranges", "plan", "--topic", "t", "--bootstrap-servers", NOWHERE, "--option=keyRanges={"),
        FAILED,
        "keyRanges",
    ),
    (("records", "--topic", "t"), WRONG_LINE, "--key"),
    (
        ("records", "--key", "a", "--topic", "t", "--bootstrap-servers", NOWHERE, SOON),
        FAILED,
        NOWHERE,
    ),
    (("records", "--key", "a", "--limit", "0"), WRONG_LINE, "--limit"),
    (("records", "--key", "a", "--option", "keys=[]"), WRONG_LINE, "--key"),
    (("volumes", "show"), FAILED, "kafka.admin.bootstrap.servers"),
    (("volumes", "show", "--every", "often"), WRONG_LINE, "--every"),
    (("volumes", "guard", "--bootstrap-servers", NOWHERE), FAILED, "min.available"),
    (("volumes", "reap"), FAILED, "kafka.admin.bootstrap.servers"),
    (("volumes", "release", "--bootstrap-servers", NOWHERE), FAILED, NOWHERE),
    (("broker", "status", "--dir", "{text}"), 3, "no broker"),
    (("broker", "start", "--version", "9"), FAILED, "'9'"),
    (("doctor", "--topic", "t"), WRONG_LINE, "--bootstrap-servers"),
    (("errors", "COMITS_FENCED"), WRONG_LINE, "COMMITS_FENCED"),
    (("errors", "NOPE"), WRONG_LINE, "did you mean"),
    (("errors", "fenced"), WRONG_LINE, "COMMITS_FENCED"),
    (("errors", "COMMITS_FENCED", "--output", "markdown"), WRONG_LINE, "markdown"),
    (("options", "--output", "yaml"), WRONG_LINE, "yaml"),
    (("options", "startingOfset"), WRONG_LINE, "startingOffsets"),
    (("options", "kafka.fetch.min.byte"), WRONG_LINE, "kafka.fetch.min.bytes"),
    (("options", "group.id"), WRONG_LINE, "kafka.group.id"),
    (("options", "columns", "--output", "toml"), WRONG_LINE, "toml"),
    (("commit", "show"), WRONG_LINE, "commit"),
    (("commits", "shwo"), WRONG_LINE, "shwo"),
    (("commits", "show", "--tpoic", "t"), WRONG_LINE, "--tpoic"),
]


def meant(text: str, places: dict[str, str]) -> str:
    for name, place in places.items():
        text = text.replace(f"{{{name}}}", place)
    return text


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """As from a shell; what a command does not expect is raised here."""
    sys.argv = ["keyrange", *words]
    code = main._run()
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def tried(words: tuple[str, ...], *expected: object) -> ParameterSet:
    # A client that asks a broker which does not answer takes its time.
    waits = words[0] in ("records", "volumes") and NOWHERE in words
    marks = [pytest.mark.ordinary] if waits else []
    return pytest.param(words, *expected, id=" ".join(words), marks=marks)


@pytest.mark.parametrize(("words", "code", "named"), [tried(*each) for each in MISTAKES])
def test_a_mistake_is_named_in_one_paragraph(
    words: tuple[str, ...],
    code: int,
    named: str,
    places: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    ended, out, err = run(capsys, *(meant(each, places) for each in words))
    assert (ended, out) == (code, ""), err
    assert meant(named, places) in err
    assert "Traceback" not in err
    if code == FAILED:
        # Notes may stand before it.
        said = err.splitlines()[-1]
        assert re.match(r"error: \[[A-Z_.]+\] .+\. To mend it: .+\.$", said), err
        assert len([line for line in err.splitlines() if line.startswith("error: ")]) == 1


def test_every_command_is_among_them() -> None:
    tried = {" ".join(words) for words, *_ in MISTAKES}
    missing = [each for each in COMMANDS if not any(t.startswith(each) for t in tried)]
    assert missing == ["broker stop", "state serve"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets").chmod(0)
    monkeypatch.setattr(sys, "argv", [])
    code, _, err = run(capsys, "checkpoint", "show", str(tmp_path))
    assert code == FAILED
    assert "INVALID_CHECKPOINT_PATH" in err


def test_an_error_of_the_system_is_a_paragraph_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what no command has a condition for."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))

    monkeypatch.setattr(daemon, "start", full)
    monkeypatch.setattr(sys, "argv", [])
    code, out, err = run(capsys, "broker", "start", "--dir", str(tmp_path))
    assert (code, out) == (FAILED, "")
    assert err == f"error: [Errno 28] No space left on device: '{tmp_path}'\n"


@pytest.mark.ordinary
def test_a_wrong_command_line_is_broken_between_words(tmp_path: Path) -> None:
    """In a terminal of 60 columns; and the help, where a command is missing, is left as it is."""
    body = "import sys\nfrom keyrange.cli import main\nsys.argv = ['keyrange', *{}]\nmain._run()"
    words = ["records", "--key", "a", "--limit", "nine hundred"]
    lines = in_terminal(body.format(words), columns=60).splitlines()
    assert max(map(len, lines)) <= 60
    assert "integer, unable to parse string as an integer" in lines[-1]
    assert "Try 'keyrange records --help' for help." in lines
    assert "  reap" in in_terminal(body.format(["volumes"]), columns=60)


def in_terminal(body: str, columns: int = 100, **environment: str) -> str:
    """What a program writes to a terminal."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    process = subprocess.Popen(
        [sys.executable, "-c", body],
        stdout=follower,
        stderr=follower,
        env=kept | {"TERM": "xterm-256color", "COLUMNS": str(columns)} | environment,
    )
    os.close(follower)
    written = read_all(leader)
    assert process.wait(timeout=120) == 0
    return written.decode()


TABLE = (
    "from keyrange.cli.render import print_record, print_table\n"
    "print_record('Commits', {'group': 'a', 'last': 7})\n"
    "print_table('Offsets', ['topic', 'offset'], [['orders', 41207]])\n"
)
COLOUR = re.compile(r"\x1b\[[\d;]*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])m")


@pytest.mark.ordinary
def test_no_colours_where_they_are_not_wanted() -> None:
    styled = in_terminal(TABLE)
    assert "\x1b[" in styled
    plain = in_terminal(TABLE, NO_COLOR="1")
    assert "41207" in plain
    assert not COLOUR.search(plain)


@pytest.mark.ordinary
def test_no_colours_and_no_control_where_there_is_no_terminal() -> None:
    piped = subprocess.run(
        [sys.executable, "-c", TABLE],
        capture_output=True,
        text=True,
        env=os.environ | {"TERM": "xterm-256color"},
        check=True,
    )
    assert "41207" in piped.stdout
    assert "\x1b" not in piped.stdout


@pytest.mark.ordinary
def test_json_stays_json_in_a_terminal() -> None:
    program = (
        "import sys; from keyrange.cli import main\n"
        "sys.argv = ['keyrange', 'errors', 'COMMITS_FENCED', '--output', 'json']\nmain.main()"
    )
    assert json.loads(in_terminal(program))["schema"] == "keyrange.errors/1"
