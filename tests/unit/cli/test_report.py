"""`keyrange report`: what it collects, and what it does where something is missing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from brokers.scripted_admin import GB, HOST, Told, scripted_brokers
from commands import commanding
from keyrange.cli.report import commands as command
from keyrange.cli.report import document as report_document
from keyrange.cli.report import report_inputs
from keyrange.cli.report.document import event, last_events
from keyrange.cli.report.report_inputs import Collector, ReportWhere
from keyrange.errors import KeyrangeError
from keyrange.model.offsets import TopicPartition
from keyrange.report.sections.lag import standings
from samples.commit_samples import QUERY
from samples.progresses import WORK
from samples.report_samples import BATCHES, HOSTILE, RECORDS, Lake

pytestmark = pytest.mark.ordinary

LIBRARY = "window.Plotly = {};"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("lake"), error=HOSTILE)


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page without the 5 MB of plotly.js, which these tests do not run."""
    monkeypatch.setattr(command, "load_library", lambda: LIBRARY)


def run(*arguments: object) -> Result:
    return commanding.run("report", *arguments)


def content(path: Path) -> tuple[str, Any]:
    text = path.read_text()
    data = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    return text, json.loads(data)


def refusal(*arguments: object) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, KeyrangeError), (result.output, result.exception)
    return str(result.exception)


def test_the_page_has_every_section_of_a_query(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = run(*lake.options(), "--out", out)
    assert (result.exit_code, result.stdout) == (0, ""), (result.output, result.exception)
    assert result.stderr == f"{out}: {out.stat().st_size / 1e6:.1f} MB\n"
    text, data = content(out)
    assert list(data["pictures"]) == [
        "lag-lines",
        "batch-rows",
        "batch-verdicts",
        "pending-causes",
        "letters-errors",
        "offset-bars",
        "offset-ranges",
        "ring",
        "moves",
        "volume-factor",
    ]
    assert f"batch {BATCHES} under way for" in text
    assert "name the cluster with <code>--bootstrap-servers</code> HOST:PORT." in text
    assert "kafka.admin.bootstrap.servers" in text
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    # What records hold is not on it.
    assert "what nobody may see" not in text


def test_the_querys_own_options_say_where_its_tables_are(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    given = ("--option", f"COMMITTABLE={lake.commits}", "--option", f"memberTable={lake.members}")
    assert run(lake.checkpoint, *given, "--out", out).exit_code == 0
    assert {"ring", "offset-ranges", "letters-errors"} <= content(out)[1]["pictures"].keys()


def test_the_checkpoint_is_enough(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert run(lake.checkpoint, "--out", out).exit_code == 0
    text, data = content(out)
    assert list(data["pictures"]) == ["lag-lines", "batch-rows", "offset-bars"]
    assert "with <code>--commits</code> TABLE, if it has commitMode=individual." in text


def test_what_cannot_be_read_is_on_the_page_and_ends_with_1(lake: Lake, tmp_path: Path) -> None:
    """A table that is not there, one that is another's, and a file that is a directory."""
    out = tmp_path / "page.html"
    given = ("--commits", tmp_path / "none", "--members", lake.commits, "--progress", tmp_path)
    result = run(lake.checkpoint, *given, "--out", out)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    said = result.stderr.splitlines()
    for name in ("progress", "commits", "members", "dead letters"):
        assert [line for line in said if line.startswith(f"not read: {name}: [")], said
    text, data = content(out)
    assert list(data["pictures"]) == ["lag-lines", "batch-rows", "offset-bars"]
    assert "there is no commit table at" in text


def test_a_checkpoint_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "[INVALID_CHECKPOINT_PATH]" in refusal(tmp_path, "--out", tmp_path / "page.html")
    (tmp_path / "metadata").write_text('{"id":"q"}')
    assert "the checkpoint holds no batch" in refusal(tmp_path, "--out", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_page_that_cannot_be_written_is_a_wrong_option(lake: Lake, tmp_path: Path) -> None:
    text = refusal(lake.checkpoint, "--out", tmp_path / "none" / "page.html")
    assert text.startswith("[INVALID_OPTIONS] --out")
    assert "cannot be written" in text
    taken = tmp_path / "taken"
    taken.mkdir()
    assert "cannot be written" in refusal(lake.checkpoint, "--out", taken)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_page_goes_to_stdout(lake: Lake) -> None:
    result = run(lake.checkpoint, "--out", "-")
    assert result.exit_code == 0
    assert result.stdout.startswith("<!doctype html>")
    assert result.stdout.rstrip().endswith("</html>")


def test_without_plotly_it_says_what_to_install(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for name in ("plotly", "plotly.offline"):
        monkeypatch.setitem(sys.modules, name, None)
    text = refusal(lake.checkpoint, "--out", tmp_path / "page.html")
    assert text.startswith("[PACKAGE_NOT_FOUND] keyrange report needs plotly: ")
    assert "pip install '.[report]'" in text
    assert list(tmp_path.iterdir()) == []


def test_the_library_is_plotlys_own() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.undo()
        text = load_library()
    assert "Plotly" in text
    assert "</script" not in text.lower()


load_library = command.load_library


def test_times_and_names_are_checked(lake: Lake) -> None:
    assert run(lake.checkpoint, "--serve", "--every", "soon").exit_code == 2
    assert "subscibe" in refusal(lake.checkpoint, "--option", "subscibe=t")
    assert "--source 3 is no source of Kafka's" in refusal(lake.checkpoint, "--source", 3)


def test_a_line_of_progress_says_where_a_batch_ended(lake: Lake) -> None:
    read = event(lake.line(5).encode(), 0)
    at_ms, ends, latest = lake.ends[5]
    del at_ms
    assert (read["batch"], read["records"], read["duration_ms"]) == (5, 3 * RECORDS + 5, 2685)
    assert read["offsets"] == 3 * RECORDS
    first = TopicPartition("flights", 0)
    assert read["positions"][0] == {
        "topic": "flights",
        "partition": 0,
        "offset": ends[first],
        "log_end": latest[first],
    }
    assert read["members"] == {"ownPortions": 10, "foreignPortions": 2, "unownedPortions": 0}
    assert read["volumes"]["throttleFactor"] == 1.0
    assert read["query_id"] == QUERY


def test_a_line_of_a_job_says_how_many_records_there_were(lake: Lake) -> None:
    read = event(lake.line(5, observedMetrics=WORK).encode(), 0)
    assert read["records"] == 100_000


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff",
        b"[1]",
        b"{}",
        b'{"sources": 5}',
        b'{"sources": [5], "batchId": 1}',
        b'{"sources": [{}]}',
        b'{"sources": [{}], "batchId": true}',
        b'{"sources": [{}], "batchId": 1, "timestamp": "noon"}',
        b'{"sources": [{"endOffset": {"t": 5}}], "batchId": 1, "timestamp": "2026-05-28"}',
        b'{"sources": [{"endOffset": {"@keyrange": {"initial": {"t": 5}}}}], "batchId": 1, '
        b'"timestamp": "2026-05-28"}',
        b"[" * 100_000,
    ],
)
def test_lines_that_are_no_progress_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        event(line, 0)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1" + 400 * "0"])
def test_figures_that_cannot_be_drawn_are_left_out(lake: Lake, tmp_path: Path, value: str) -> None:
    lines = [lake.line(number) for number in range(BATCHES)]
    for name, usual in (("throttleFactor", "1.0"), ("fetchedBytes", "368000")):
        lines[-1] = lines[-1].replace(f'"{name}": {usual}', f'"{name}": {value}')
    lines[-2] = lines[-2].replace('"batchDuration": 2000', f'"batchDuration": {value}')
    assert lines[-1].count(value) == 2
    path = tmp_path / "progress.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    out = tmp_path / "page.html"
    result = run(lake.checkpoint, "--progress", path, "--out", out)
    assert result.exit_code == 0, (result.output, result.exception)
    content(out)


def test_sources_of_others_have_no_positions() -> None:
    line = b'{"sources": [{"endOffset": "{\\"a\\": 1}"}, {"endOffset": 7}], "batchId": 1, '
    line += b'"timestamp": "2026-05-28T20:26:40.000Z", "id": "q"}'
    read = event(line, 1)
    assert (read["positions"], read["members"], read["records"]) == ([], {}, None)


def test_the_last_lines_of_a_query_count(lake: Lake) -> None:
    lines = [
        lake.line(0).encode(),
        lake.line(1, id="another").encode(),
        b"no progress",
        lake.line(1, batchDuration=1).encode(),
        lake.line(1).encode(),
        lake.line(2).encode(),
        lake.line(3).encode()[:100],
    ]
    found = last_events(lines, 0, QUERY, 50)
    assert [each["batch"] for each in found["events"]] == [0, 1, 2]
    assert found["events"][1]["duration_ms"] == 2_137
    assert (found["others"], found["unreadable"]) == (1, 1)
    assert [each["batch"] for each in last_events(lines, 0, QUERY, 2)["events"]] == [1, 2]


def test_of_a_large_progress_file_only_its_end_is_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_inputs, "_TAIL_BYTES", len(lake.line(BATCHES - 1)) * 3)
    lines = report_inputs._tail(str(lake.progress), {})
    found = last_events(lines, 0, QUERY, 100)
    assert [each["batch"] for each in found["events"]] == [BATCHES - 2, BATCHES - 1]
    assert found["unreadable"] == 0


def test_lines_of_a_file_that_was_put_aside_count_too(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "p").write_text(f"{lake.line(3)}\n")
    assert [each["batch"] for each in progress_of(lake, tmp_path / "p")] == [3]
    (tmp_path / "p.1").write_text(f"{lake.line(1)}\n{lake.line(2)}\n")
    assert [each["batch"] for each in progress_of(lake, tmp_path / "p")] == [1, 2, 3]


def progress_of(lake: Lake, path: Path) -> Any:
    found = Collector(where(lake, commits="", members="", progress=str(path))).collect()
    return found.progress.document


def test_of_very_many_partitions_the_last_batches_have_their_positions(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_document, "POSITIONS_MAX", 10)
    found = Collector(where(lake, commits="", members="")).collect()
    for batches in (found.history, found.progress.document):
        assert [len(row["positions"]) for row in batches[-5:]] == [0, 3, 3, 3, 3]


def where(lake: Lake, **more: Any) -> ReportWhere:
    usual = {
        "checkpoint": str(lake.checkpoint),
        "source": None,
        "batches": 10,
        "progress": str(lake.progress),
        "commits": str(lake.commits),
        "members": str(lake.members),
        "letters": "",
        "group": "",
        "named": {},
    }
    return ReportWhere(**{**usual, **more})


def test_documents_are_those_of_the_commands(lake: Lake) -> None:
    found = Collector(where(lake)).collect()

    def printed(*arguments: object) -> Any:
        return json.loads(commanding.text(*arguments, "--output", "json"))

    def rows(*arguments: object) -> Any:
        """What is printed is a list, or has one."""
        found = printed(*arguments)
        lists = found.values() if isinstance(found, dict) else [found]
        return next(each for each in lists if isinstance(each, list))

    show = printed("commits", "show", lake.commits)
    # Ages are of the moment.
    for each in ("committed", "done_ranges", "pending", "log_end", "position"):
        mine = [row[each] for row in found.commits.document["show"]["partitions"]]
        assert mine == [row[each] for row in show["partitions"]], each
    assert found.commits.document["history"] == rows(
        "commits", "history", lake.commits, "--limit", 10
    )
    assert found.members.document["history"] == rows("members", "history", lake.members)
    listed = rows("deadletters", "list", lake.commits, "--limit", 5_000)
    offsets = {(row["partition"], row["offset"]) for row in listed}
    assert {(row["partition"], row["offset"]) for row in found.letters.document} == offsets
    assert not {"value", "headers"} & found.letters.document[0].keys()
    checkpoint = printed("checkpoint", "show", lake.checkpoint)
    assert found.checkpoint["positions"] == checkpoint["positions"]
    assert [row["batch"] for row in found.history] == list(range(BATCHES - 9, BATCHES + 1))
    assert found.history[-1]["offsets"] == 3 * RECORDS
    assert [row["epoch"] for row in found.members.document["epochs"]] == [1, 2, 3, 4]


def test_what_cannot_be_read_any_more_stays_and_says_since_when(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = where(lake, batches=5, commits="")
    collector = Collector(usual)
    first = collector.collect()
    gone = where(lake, batches=5, commits="", members="/nowhere", progress="/nowhere")
    monkeypatch.setattr(collector, "_where", gone)
    second = collector.collect()
    assert second.members.document == first.members.document
    assert "there is no table of members at /nowhere" in second.members.failure
    third = collector.collect()
    assert third.members.since == second.members.since >= first.at
    assert "What is shown is what was read before." in third.members.notes[0]
    monkeypatch.setattr(collector, "_where", usual)
    assert collector.collect().members.failure == ""


def test_volumes_are_looked_at_by_the_options_of_the_guard(lake: Lake) -> None:
    def looking(named: dict[str, str]) -> Collector:
        return Collector(where(lake, commits="", members="", progress="", named=named))

    with scripted_brokers(1) as brokers:
        brokers.told[1] = Told((("/a", 100 * GB, 5 * GB, 0),))
        servers = ",".join(f"{HOST}:{port}" for port in brokers.ports.values())
        named = {"kafka.admin.bootstrap.servers": servers, "min.available.ratio": "0.1"}
        collector = looking({**named, "maxOffsetsPerTrigger": "5"})
        [volume] = (found := collector.collect().volumes.document)["volumes"]
        assert (volume["log_dir"], volume["violated"]) == ("/a", True)
        assert found["factor"]["value"] == 0.0
        brokers.told[1] = Told((("/a", 100 * GB, 50 * GB, 0),))
        again = collector.collect().volumes.document
        assert again["volumes"][0]["violated"] is False
    refused = looking({**named, "min.available.ratio": "2"}).collect()
    assert "min.available.ratio" in refused.volumes.failure


def test_a_cluster_that_does_not_answer_takes_nothing_else_away(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    quick = ("--option", "kafka.default.api.timeout.ms=1000")
    result = run(*lake.options(), *quick, "--bootstrap-servers", f"{HOST}:1", "--out", out)
    assert result.exit_code == 1
    assert "not read: Kafka: [BROKER_UNREACHABLE]" in result.stderr
    assert "offset-ranges" in content(out)[1]["pictures"]
    assert os.path.getsize(out) > 10_000


def test_a_progress_file_that_ended_long_ago_does_not_say_where_the_query_is(
    lake: Lake, tmp_path: Path
) -> None:
    path = tmp_path / "old.jsonl"
    path.write_text("".join(f"{lake.line(number)}\n" for number in range(3)))
    sources = Collector(where(lake, progress=str(path), commits="")).collect()
    assert sources.progress.remarks == (f"{path} ends with batch 2, and there were others since.",)
    # What the checkpoint says of the last batch is younger.
    assert {each.known_by for each in standings(sources)} == {f"batch {BATCHES}"}
    whole = Collector(where(lake, commits="")).collect()
    assert (whole.progress.remarks, whole.progress.outdated) == ((), False)
    assert {each.known_by for each in standings(whole)} == {f"batch {BATCHES - 1}"}
