"""The command line's exit codes and streams, seen from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from keyrange.cli.render import note, print_document, print_record, print_table

pytestmark = pytest.mark.ordinary


def run(*arguments: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KEYRANGE_CACHE": str(cache or "unused"), "COLUMNS": "120"}
    command = [sys.executable, "-m", "keyrange.cli.main", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=120, check=False
    )


def run_main(body: str) -> list[str]:
    """A command that runs `main` with a command named `probe` added to it."""
    program = f"""
import sys
from keyrange.cli import main as cli

@cli.app.command()
def probe() -> None:
{textwrap.indent(textwrap.dedent(body), "    ")}

sys.argv = ["keyrange", "probe"]
cli.main()
"""
    return [sys.executable, "-c", program]


def test_help_names_the_nouns_and_imports_nothing_heavy() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert "broker" in result.stdout
    program = "import sys, keyrange.cli.main; print([m for m in sys.modules if '.' not in m])"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    heavy = {"pyspark", "pyarrow", "numpy", "numba", "kafka", "deltalake", "pandas"}
    assert loaded.returncode == 0
    assert heavy.isdisjoint(eval(loaded.stdout))


@pytest.mark.parametrize("arguments", [["nope"], ["broker", "start", "--nope"], ["--nope"]])
def test_a_wrong_command_line_ends_with_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "nope" in result.stderr


def test_an_error_of_the_catalogue_is_one_paragraph_on_stderr_and_ends_with_1(
    tmp_path: Path,
) -> None:
    result = run("broker", "start", "--version", "9", cache=tmp_path)
    assert result.returncode == 1
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("error: [INVALID_OPTIONS] version '9'")
    assert "To mend it:" in line


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("file", "it is no directory"),
        ("file/below", "Not a directory"),
        ("taken", "Is a directory"),
    ],
)
def test_a_directory_that_no_broker_can_use_is_one_paragraph(
    tmp_path: Path, named: str, why: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "taken" / "start.lock").mkdir(parents=True)
    result = run("broker", "start", "--dir", str(tmp_path / named), cache=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    [line] = result.stderr.splitlines()
    begin = f"error: [BROKER_DIRECTORY_UNUSABLE] the broker cannot keep its data in {tmp_path}"
    assert line.startswith(f"{begin}/{named}: {why}")
    assert "To mend it: name a directory with --dir" in line


def test_errors_notes_and_logs_are_lines_of_json_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYRANGE_LOG", "json")
    failed = run("broker", "start", "--version", "9", cache=tmp_path)
    [line] = map(json.loads, failed.stderr.splitlines())
    assert (line["level"], line["condition"]) == ("ERROR", "INVALID_OPTIONS")
    assert line["message"].startswith("[INVALID_OPTIONS] version '9'")
    [line] = map(json.loads, run("broker", "status", cache=tmp_path).stderr.splitlines())
    assert (line["level"], line["message"]) == ("INFO", "no broker is running")
    command = run_main("import logging\nlogging.getLogger('keyrange.kafka').warning('again')")
    logged = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(logged.stderr)["message"] == "again"


def test_an_unexpected_error_keeps_its_traceback_without_values_of_variables() -> None:
    command = run_main("password = 'very' + 'secret'\nraise RuntimeError('surprise')")
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "RuntimeError: surprise" in result.stderr
    assert "verysecret" not in result.stderr


def test_what_a_terminal_has_no_letters_for_is_replaced() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    result = subprocess.run(
        run_main(r"print('K\u00f6ln \u2588 \udcff')"),
        capture_output=True,
        timeout=120,
        check=False,
        env=environment,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"K\xf6ln ? ?\n", b"")


@pytest.mark.parametrize(("log", "said"), [("", "error: [Errno 28] full\n"), ("json", None)])
def test_a_place_that_fails_is_said_as_all_errors_are(log: str, said: str | None) -> None:
    result = subprocess.run(
        run_main("raise OSError(28, 'full')"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"KEYRANGE_LOG": log},
    )
    assert result.returncode == 1
    if said is not None:
        assert result.stderr == said
    else:
        line = json.loads(result.stderr)
        assert (line["message"], line["condition"]) == ("[Errno 28] full", "OSError")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_command_ends_as_usual_where_nobody_listens(closed: str) -> None:
    command = f"{sys.executable} -P -m keyrange.cli.main errors COMMITS_FENCED {closed}"
    ended = subprocess.run(["sh", "-c", command], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_closed_pipe_is_silent() -> None:
    command = run_main("for _ in range(100_000): print('line')")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=120) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_with_its_code_once_all_is_closed(number: int, code: int) -> None:
    command = run_main(
        "import time\ntry:\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "finally:\n    print('closed', flush=True)"
    )
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell starts what runs in the background with Ctrl-C switched off.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 no threads
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.1)
    process.send_signal(number)
    assert process.wait(timeout=120) == code
    assert process.stdout.read() == b"closed\n"
    assert b"Traceback" not in process.stderr.read()


def test_without_a_broker_status_ends_with_3_and_stop_is_content(tmp_path: Path) -> None:
    status = run("broker", "status", "--output", "json", cache=tmp_path)
    assert (status.returncode, status.stdout) == (3, "")
    assert status.stderr == "no broker is running\n"
    stop = run("broker", "stop", cache=tmp_path)
    assert (stop.returncode, stop.stdout, stop.stderr) == (0, "", "no broker is running\n")


def test_json_is_one_document_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"topic": "orders", "lag": 3}, {"topic": "[red]", "lag": None}]
    print_document("lag/1", {"topics": rows})
    note("two topics")
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"schema": "keyrange.lag/1", "topics": rows}
    assert printed.err == "two topics\n"


def test_text_cuts_nothing_off_and_reads_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("lag", ["topic", "lag"], [["t" * 200, 3], ["[red]", None]])
    print_record("broker", {"pid": 7})
    printed = capsys.readouterr()
    assert "t" * 200 in printed.out
    assert "[red]" in printed.out
    assert "pid" in printed.out
    assert "7" in printed.out
    assert printed.err == ""


@pytest.mark.parametrize("title", ["cp/[/prod]/x", "cp/[prod]/x", "cp/:smile:"])
def test_a_title_is_no_markup(title: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_record(title, {"batch": "7" * 20})
    print_table(title, ["topic"], [["t" * 20]])
    assert [line.strip() for line in capsys.readouterr().out.splitlines()].count(title) == 2


def test_a_table_with_a_row_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        print_table("lag", ["topic", "lag"], [["orders"]])
