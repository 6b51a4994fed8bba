"""One truth about lag: what commands say of one query is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keyrange.cli.commits.document import LogEnd, describe
from keyrange.cli.report import report_inputs
from keyrange.cli.report.report_inputs import Collector, ReportWhere
from keyrange.cli.values import iso
from keyrange.cli.watch.document import Seen
from keyrange.cli.watch.document import describe as describe_look
from keyrange.cli.watch.observers import Answer, Answers, Ends
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.options.commits import CommitOptions
from keyrange.report.html import overview_section
from keyrange.report.page_parts import Source
from keyrange.report.sections.lag import lag_section, series, standings
from keyrange.storage.checkpoint_files import load_progress, open_directory
from queries.scripted import ScriptedCluster
from samples.commit_samples import SOURCE, TOPIC_ID
from samples.report_samples import Lake


@pytest.mark.ordinary
def test_watch_report_and_commits_show_say_the_same_of_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same ends of the logs, partition by partition and in sum."""
    lake = Lake(tmp_path)
    ends = {each: state.position + 700 for each, state in lake.query.states.items()}
    commits = open_commit_table(CommitOptions(table=str(lake.commits)), SOURCE)
    known = commits.known()
    now_ends = {each: LogEnd(at, "now") for each, at in ends.items()}
    show = describe(known, None, now_ends, lake.query.now_ms)
    checkpoint = load_progress(open_directory(str(lake.checkpoint)))
    watched = describe_look(
        "/cp",
        Answers(Answer(checkpoint), broker=Answer(Ends(ends)), commits=Answer(show)),
        Seen(),
        lake.query.now_ms,
    )
    rows = [{**each._asdict(), "offset": at} for each, at in ends.items()]
    asked = Source({"at": iso(lake.query.now_ms), "ends": rows})

    def told_ends(_: object, __: object, ___: object, beside: Any) -> Source:
        beside.ends = Ends(ends)
        return asked

    monkeypatch.setattr(report_inputs, "_ends", told_ends)
    named = {"kafka.bootstrap.servers": "unused:9092"}
    where = ReportWhere(
        checkpoint=str(lake.checkpoint),
        named=named,
        commits=str(lake.commits),
        source=None,
        batches=10,
        letters="",
    )
    page = Collector(where).collect()

    def by_name(found: Any) -> dict[str, tuple[int, int]]:
        return {
            f"{row['topic']}-{row['partition']}": (row["read_lag"], row["commit_lag"])
            for row in found
        }

    told = by_name(show["partitions"])
    assert by_name(watched["partitions"]) == told
    assert {row.name: (row.read_lag, row.commit_lag) for row in standings(page)} == told
    read, commit = (sum(each) for each in zip(*told.values(), strict=True))
    assert read == 3 * 700 < commit
    assert (watched["lag"]["read"], watched["lag"]["commit"]) == (read, commit)
    facts = {"read lag": f"{read:,}", "commit lag": f"{commit:,}"}
    assert facts.items() <= dict(lag_section(page).facts).items()
    # The state of the page has the words of watch.
    said = dict(overview_section(page).facts)
    assert {name: said[name].split()[0].rstrip(",") for name in facts} == facts
    # The chart ends at the read lag that is written above it.
    last = {name: points[-1][1] for name, points in series(page).items()}
    assert sum(last.values()) == read


@pytest.mark.ordinary
@pytest.mark.parametrize("way", ["subscribe", "assign"])
def test_partitions_that_were_added_count_unless_they_are_assigned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    cluster = ScriptedCluster(10**6, partitions=4)
    cluster.topics = {"flights": TOPIC_ID}
    monkeypatch.setattr("keyrange.kafka.cluster.Cluster", lambda settings: cluster)
    monkeypatch.setattr(report_inputs, "_plan", lambda *_: [])
    where = ReportWhere(
        checkpoint=str(Lake(tmp_path).checkpoint),
        named={"kafka.bootstrap.servers": "h:1", way: '{"flights": [0, 1, 2]}'},
        source=None,
        batches=10,
        letters="",
    )
    found = Collector(where).collect()
    assert found.ends.failure == ""
    assert len(found.ends.document["ends"]) == (3 if way == "assign" else 4)
