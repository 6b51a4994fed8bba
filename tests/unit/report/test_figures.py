"""The figures of a report, by what they draw."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from keyrange.cli.commits.document import describe
from keyrange.cli.values import iso
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.partition_progress import KeyRangeState, PartitionState
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.model.offsets import TopicPartition
from keyrange.report import chart_shapes
from keyrange.report.page_parts import ROWS_MAX, Source
from keyrange.report.sections import batches, failed_records, lag, offsets, ring, volumes
from samples.commit_samples import BEGAN_MS
from samples.report_documents import HALF, LOWER, UPPER, commits, letter, owners, told
from samples.report_samples import batch, many_ranges, sources


def trace(figure: Any, name: str) -> Any:
    [found] = [each for each in figure["data"] if each.get("name") == name]
    return found


def corners(found: Any) -> list[list[tuple[float, float]]]:
    """The corners of each area of a trace."""
    cut: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(found["x"], found["y"], strict=True):
        if x is None:
            cut.append([])
        else:
            cut[-1].append((x, y))
    return cut


def areas(found: Any) -> list[tuple[float, float, float, float]]:
    """The rectangles of a trace, as from x, until x, from y, until y."""
    return [
        (min(x for x, _ in each), max(x for x, _ in each), min(y for _, y in each),
         max(y for _, y in each))
        for each in corners(found)
    ]  # fmt: skip


def test_a_range_is_drawn_where_its_keys_and_offsets_are() -> None:
    made = sources(commits=commits())
    [standing] = [each for each in lag.standings(made) if each.name == "flights-0"]
    document = made.commits.document
    part = document["show"]["partitions"][0]
    figure = offsets.ranges_figure(standing, part, document["gaps"])
    assert corners(trace(figure, "committed")) == [
        [(0, 0), (0, 100), (120, 100), (120, 50), (150, 50), (150, 0)]
    ]
    assert corners(trace(figure, "done above it")) == [
        [(150, 0), (150, 50), (120, 50), (120, 100), (200, 100), (200, 50), (150, 50), (150, 0)]
    ]
    assert areas(trace(figure, "not done")) == [(120, 121, 50, 100), (130, 131, 50, 100)]
    assert corners(trace(figure, "not handed out to these keys")) == [
        [(150, 0), (150, 50), (200, 50), (200, 100), (200, 100), (200, 0)]
    ]
    marks = trace(figure, "a record that is not done")
    assert (marks["x"], marks["y"]) == ([130, 120], [75.0, 50.0])
    assert marks["customdata"][1] == ["timed out", 2, "5.0 s"]
    stair = trace(figure, "committed, by key range")
    assert (stair["x"], stair["y"]) == ([150, 150, 120, 120], [0.0, 50.0, 50.0, 100.0])


def test_what_is_in_flight_and_to_come_lies_behind() -> None:
    made = sources(commits=commits(log_end=90))
    row = {"source": 0, "topic": "flights", "partition": 0, "committed": 200, "planned": 260}
    row |= {"from_offset": 200}
    made.checkpoint["positions"][:] = [row]
    document = made.commits.document
    made = sources(
        commits=made.commits,
        ends=Source({"at": made.at, "ends": [{"topic": "flights", "partition": 0, "offset": 300}]}),
    )
    made.checkpoint["positions"][:] = [row]
    [standing] = lag.standings(made)
    assert (standing.committed, standing.planned, standing.log_end) == (120, 260, 300)
    assert (standing.commit_lag, standing.known_by) == (180, "Kafka")
    part = document["show"]["partitions"][0]
    figure = offsets.ranges_figure(standing, part, document["gaps"])
    assert areas(trace(figure, "in flight")) == [(200, 260, 0, 100)]
    assert areas(trace(figure, "to come")) == [(260, 300, 0, 100)]
    whole = offsets.offsets_section(made).pictures[0].views[0].figure
    lengths = {each["name"]: each["x"] for each in whole["data"]}
    assert lengths == {"done above it": [78], "not done": [2], "in flight": [60], "to come": [40]}
    # The line over time goes on from what was read to.
    assert lag.series(made) == {"flights-0": [(made.at, 100)]}
    # A range is behind the same end, and not that of the last commit.
    by_range = offsets.offsets_section(made).pictures[1].views[0].table
    behind = {row[by_range.columns.index("commit lag")] for row in by_range.rows}
    committed = [row["committed"] for row in part["ranges"]]
    assert behind == {str(300 - at) for at in committed}


def test_rectangles_that_stand_on_one_another_are_one_area() -> None:
    path = chart_shapes.Path()
    path.band([(0, 5, 0, 1), (0, 5, 1, 2), (1, 6, 2, 3)])
    left, right = [(0, 0), (0, 2), (1, 2), (1, 3)], [(5, 0), (5, 2), (6, 2), (6, 3)]
    assert corners({"x": path.x, "y": path.y}) == [[*left, *reversed(right)]]
    path.band([(3, 3, 0, 1), (4, 4, 1, 2)])
    path.rectangle((3, 3, 0, 1))
    assert None not in path.x


@pytest.mark.ordinary
def test_ten_thousand_ranges_are_a_few_traces_with_bounds() -> None:
    made = many_ranges(10_000)
    section = offsets.offsets_section(made)
    [view] = section.pictures[1].views
    kinds = [each["name"] for each in view.figure["data"]]
    assert len(kinds) == len(set(kinds)) <= 8
    assert len(trace(view.figure, "a record that is not done")["x"]) == offsets.PENDING_MAX
    assert len(view.table.rows) == ROWS_MAX
    assert view.table.left_out == 10_000 - ROWS_MAX
    assert "10,000 key ranges" in view.summary


def test_more_runs_than_can_be_drawn_are_cut_and_nothing_is_called_done() -> None:
    row = {"committed": 0, "scanned": 100, "done_above": [[at, at + 1] for at in range(1, 99, 2)]}
    assert offsets.runs_not_done(row, 3) == [(0, 1), (2, 3), (4, 5), (6, 100)]
    assert offsets.runs_not_done(row, 1_000)[-1] == (98, 100)
    assert offsets.runs_not_done({"committed": 7, "scanned": 7, "done_above": []}, 3) == []


def test_partitions_beyond_what_a_page_can_hold_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offsets, "AREAS_MAX", 5_000)
    section = offsets.offsets_section(many_ranges(8_000, partitions=8, pending=0))
    assert len(section.pictures[1].views) == 5
    assert section.notes[0].startswith("3 partitions would make the page too large")


def test_lag_is_a_line_for_each_partition_and_one_of_the_sum() -> None:
    made = sources(progress=Source([told(0, [5, 50]), told(1, [0, 80])]))
    figure = lag.lag_section(made).pictures[0].views[0].figure
    lines = {each["name"]: each["y"] for each in figure["data"]}
    assert lines == {"all partitions together": [55, 80], "flights-1": [50, 80],
                     "flights-0": [5, 0]}  # fmt: skip
    assert figure["data"][1]["x"] == ["2026-05-28 20:26:40.000", "2026-05-28 20:26:50.000"]
    styles = [(each["line"]["color"], each["marker"]["symbol"]) for each in figure["data"][1:]]
    assert len(set(styles)) == 2


def test_kafka_adds_the_lag_of_now_from_the_committed_offset() -> None:
    ends = [{"topic": "flights", "partition": 0, "offset": 95}]
    made = sources(ends=Source({"at": iso(BEGAN_MS + 60_000), "ends": ends}))
    assert lag.series(made) == {"flights-0": [(iso(BEGAN_MS + 60_000), 5)]}
    rows = lag.standings(made)
    assert [(each.name, each.read_lag, each.known_by) for each in rows] == [
        ("flights-0", 5, "Kafka"),
        ("flights-1", None, ""),
    ]


def test_what_is_planned_is_not_read() -> None:
    """With individual commits the checkpoint knows the ends, also of a batch that is under way."""
    both = [batch(0, "committed", 90, 95), batch(1, "planned", 100, 130)]
    made = replace(sources(), history=both)
    assert [behind for _, behind in lag.series(made)["flights-0"]] == [5, 40]
    assert [each.read_lag for each in lag.standings(made)] == [40, 40]


def test_of_a_first_batch_that_is_not_committed_everything_is_in_flight() -> None:
    made = sources()
    for row in made.checkpoint["positions"]:
        row["committed"] = None
    assert [(each.committed, each.planned) for each in lag.standings(made)] == [(90, 100)] * 2
    whole = offsets.offsets_section(made).pictures[0].views[0].figure
    assert {each["name"]: each["x"] for each in whole["data"]}["in flight"] == [10, 10]


def test_without_an_end_there_is_no_picture_of_lag_but_what_brings_it() -> None:
    section = lag.lag_section(sources())
    assert section.pictures == []
    assert section.missing == ["--progress", "--ends"]
    assert [row[:4] for row in section.tables[0].rows] == [
        ["flights-0", "90", "90", "100"],
        ["flights-1", "90", "90", "100"],
    ]


def test_of_many_partitions_those_that_are_behind_most_are_drawn() -> None:
    found = {f"t-{at}": [("2026-05-28T20:26:40", at)] for at in range(50)}
    names = [each["name"] for each in lag.figure(found)["data"]]
    assert names[:3] == ["all partitions together", "t-49", "t-48"]
    assert len(names) == lag.LINES_MAX + 1
    assert lag.figure(found)["data"][0]["visible"] == "legendonly"


LONG = "prod.eu-central-1.payments.transactions.enriched." + "internal." * 21
LENGTHS = {"done above it": 0, "not done": 0, "in flight": 0, "to come": 100}
SHORT = lag.PartitionLag("t-0", 1, 1, 1, 2, "")
LONG_NAMES = [f"{LONG}v1-{partition}" for partition in range(4)]


def test_partitions_of_a_topic_with_a_long_name_have_a_bar_each() -> None:
    """A topic may have 249 characters, and its partitions differ behind them."""
    assert len(LONG_NAMES[0]) > 240
    rows = [(lag.PartitionLag(name, 10, 10, 10, 110, "Kafka"), LENGTHS) for name in LONG_NAMES]
    figure = offsets.bars(rows)
    assert figure["data"][-1]["y"] == LONG_NAMES
    axis = figure["layout"]["yaxis"]
    assert axis["tickvals"] == LONG_NAMES
    assert [len(text) for text in axis["ticktext"]] == [60] * 4
    assert [text[-4:] for text in axis["ticktext"]] == ["v1-0", "v1-1", "v1-2", "v1-3"]
    assert "tickvals" not in offsets.bars([(SHORT, LENGTHS)])["layout"]["yaxis"]


def test_long_names_of_very_many_partitions_are_not_all_written() -> None:
    names = [f"{LONG}v1-{partition}" for partition in range(200)]
    figure = offsets.bars([(lag.PartitionLag(name, 1, 1, 1, 2, ""), LENGTHS) for name in names])
    assert figure["data"][-1]["y"] == names
    assert figure["layout"]["yaxis"]["tickvals"] == names[::8]


def test_lines_of_long_names_are_told_apart() -> None:
    found = {name: [("2026-05-28T20:26:40", at)] for at, name in enumerate(LONG_NAMES)}
    data = lag.figure(found)["data"][1:]
    assert len({each["name"] for each in data}) == 4
    for name, each in zip(reversed(LONG_NAMES), data, strict=True):
        assert each["hovertemplate"].endswith(f"<extra>{name}</extra>")


@pytest.mark.parametrize("most", range(25))
def test_an_axis_of_few_things_has_whole_numbers_alone(most: int) -> None:
    """As plotly rounds a step up: to the next 1, 2 or 5 of a power of ten."""
    axis = chart_shapes.count_axis("records", most)
    step = max(most, 1) * 1.0556 / axis["nticks"]
    assert any(step <= each for each in (1, 2, 5, 10))
    assert step > 0.5
    assert axis["tickformat"] == ","
    assert chart_shapes.count_axis("records", 2_500_000)["tickformat"] == "~s"


def test_lag_that_there_is_none_of_is_said_and_not_drawn() -> None:
    made = sources(progress=Source([told(0, [0, 0]), told(1, [0, 0])]))
    section = lag.lag_section(made)
    assert section.pictures == []
    assert section.notes == ["No partition had a read lag at any time that is known."]
    assert len(section.tables[0].rows) == 2
    section = lag.lag_section(sources(progress=Source([told(1, [5, 0])])))
    assert section.pictures == []
    assert section.notes == ["The lag is known of one time, so there is no line to draw."]


def test_where_all_is_committed_there_is_nothing_to_draw_above() -> None:
    made = sources()
    for row in made.checkpoint["positions"]:
        row["committed"] = row["planned"]
    section = offsets.offsets_section(made)
    assert section.pictures == []
    assert section.notes[0].startswith("As far as is known, all offsets are committed")
    assert section.tables[0].rows[0] == ["flights-0", "100", "0", "0", "0", "0"]


def test_key_ranges_that_have_done_all_are_no_picture() -> None:
    done = (KeyRangeState(LOWER, 200), KeyRangeState(UPPER, 200))
    partition = TopicPartition("flights", 0)
    known = Snapshot(3, columns_of({partition: PartitionState("id", 200, done)}), 2, "run-1", None)
    show = describe(known, None, {}, BEGAN_MS)
    document = {"show": show, "gaps": [], "causes": [], "history": []}
    section = offsets.offsets_section(sources(commits=Source(document)))
    assert [each.name for each in section.pictures] == ["offset-bars"]


def test_pending_records_are_counted_by_their_cause_and_deliveries() -> None:
    rows = [
        {"cause": "rejected", "deliveries": 1, "records": 2},
        {"cause": "rejected", "deliveries": 4, "records": 5},
        {"cause": "rejected", "deliveries": 3, "records": 1},
        {"cause": "held_back", "deliveries": 0, "records": 30},
    ]
    waits, once, more = failed_records.causes_figure(rows)["data"]
    assert (waits["name"], waits["x"]) == ("none yet", [30, 0])
    assert (once["name"], once["y"], once["x"]) == (
        "1 delivery", ["held back", "rejected"], [0, 2]
    )  # fmt: skip
    assert (more["name"], more["x"]) == ("3 and more", [0, 6])
    section = failed_records.letters_section(sources(commits=commits()))
    assert section.facts == [("pending", "2")]
    [picture] = section.pictures
    assert picture.name == "pending-causes"
    assert picture.views[0].table.rows[0][:2] == ["flights-0", "130"]


def test_no_colour_of_a_figure_is_unknown_to_the_page() -> None:
    style = (files("keyrange.report") / "page" / "page.css").read_text()
    made = many_ranges(4)
    volume = {"broker": 1, "available_ratio": 0.05, "limit_ratio": 0.1, "log_dir": "/d"}
    figures = [
        *(picture.views[0].figure for picture in offsets.offsets_section(made).pictures),
        *(picture.views[0].figure for picture in failed_records.letters_section(made).pictures),
        batches.figure(batches.batches_of(sources(progress=Source([told(0, [1, 1])])))),
        failed_records.figure([letter("a"), letter("b", "replayed")]),
        lag.figure({f"t-{at}": [(iso(BEGAN_MS), at)] for at in range(20)}),
        volumes.bars_figure([volume]),
        ring.ring_figure({"t-0": list(ring.pieces(owners((0, 2**63 - 1, "a")), ()))}, {"a": "A"}),
    ]
    used = set(re.findall(r'"(--\w+)"', json.dumps(figures)))
    assert {"--pending", "--committed", "--slot0", "--grid"} <= used
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    assert {each for each in used if f"{each}:" not in light} == set()
    # Owners of key ranges have the same colours in both.
    assert {each for each in used if f"{each}:" not in dark} == {"--slot0", "--onslot"}


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], [((0, 9), "a", None), ((10, 19), "b", None)]),
        (owners((0, 19, "a")), [((0, 9), "a", "a"), ((10, 19), "b", "a")]),
        (
            owners((0, 4, "b"), (5, 19, "a")),
            [((0, 4), "a", "b"), ((5, 9), "a", "a"), ((10, 19), "b", "a")],
        ),
        (owners((0, 9, "b"), (10, 19, "a")), [((0, 9), "a", "b"), ((10, 19), "b", "a")]),
    ],
)
def test_pieces_are_cut_where_an_owner_changes(before: Any, expected: Any) -> None:
    after = owners((0, 9, "a"), (10, 19, "b"))
    found = [(each.range, each.slot, each.before) for each in ring.pieces(after, before)]
    assert found == expected


def test_the_ring_has_a_trace_for_each_owner_and_one_of_what_moved() -> None:
    top = 2**63 - 1
    now = owners((0, HALF - 1, "x-0"), (HALF, top, "x-1"))
    was = owners((0, top, "x-0"))
    cut = {"t-0": list(ring.pieces(now, was)), "t-1": list(ring.pieces(was, was))}
    figure = ring.ring_figure(cut, {"x-0": "A", "x-1": "B"})
    names = [each["name"] for each in figure["data"] if "name" in each]
    assert names == ["A x-0", "B x-1", "moved in this epoch"]
    assert trace(figure, "A x-0")["text"] == "A x-0: 75.0% of what is drawn"
    # The right half of the outer ring is of the hashes below the middle.
    half = [x for x in trace(figure, "B x-1")["x"] if x is not None]
    assert max(half) < 1e-3
    area = trace(figure, "B x-1")["x"]
    assert trace(figure, "moved in this epoch")["x"] == [*area, area[0]]
    letters_drawn = figure["data"][-1]
    assert letters_drawn["text"] == ["A", "B", "A"]
    assert letters_drawn["x"][0] > 0 > letters_drawn["x"][1]


def test_dead_letters_are_counted_by_their_error() -> None:
    rows = [letter("a"), letter("b"), letter("b"), letter("b", "replayed")]
    dead, replayed = failed_records.figure(rows)["data"]
    assert (dead["y"], dead["x"]) == (["b", "a"], [2, 1])
    assert (replayed["name"], replayed["x"]) == ("replayed", [1, 0])
    section = failed_records.letters_section(sources(letters=Source(rows)))
    assert section.facts == [("dead letters", "3"), ("delivered again since", "1")]
    assert len(failed_records.figure([letter("a")])["data"]) == 1


def test_volumes_have_their_limit_and_the_factor() -> None:
    row = {"broker": 1, "log_dir": "/d", "total_bytes": 1000, "used_bytes": 950}
    row |= {"available_bytes": 50, "available_ratio": 0.05, "violated": True}
    row |= {"limit_ratio": 0.1, "time_to_full_ms": 90_000, "told": True}
    used, free, limit = volumes.bars_figure([row])["data"]
    assert (used["x"], free["x"], limit["x"]) == ([0.95], [0.05], [0.9])
    factor = {"value": 0.0, "why": "it is full", "since": iso(BEGAN_MS), "fallback": False}
    known = {"factor": factor, "limit": "10 %", "failure": "broker 2", "volumes": [row]}
    section = volumes.volumes_section(sources(volumes=Source(known)))
    assert section.facts[0] == ("throttle factor", "0")
    assert section.failures == ["Not observed: broker 2"]
    assert section.pictures[0].views[0].table.rows[0][-2:] == ["1.5 min", "at the limit"]


def test_volumes_of_long_names_have_a_bar_each() -> None:
    row = {"broker": 1, "available_ratio": 0.05, "limit_ratio": 0.1}
    rows = [row | {"log_dir": f"/{'kafka/' * 30}data-{at}"} for at in range(3)]
    for trace in volumes.bars_figure(rows)["data"]:
        assert trace["y"] == [f"1 {row['log_dir']}" for row in rows]


def test_the_factor_of_each_batch_is_drawn() -> None:
    events = [
        told(0, [0, 0], volumes={"throttleFactor": 1.0, "why": "all well"}),
        told(1, [0, 0], volumes={"throttleFactor": 0.0, "why": "full", "partitionsHeld": 2}),
    ]
    section = volumes.volumes_section(sources(progress=Source(events)))
    [line] = section.pictures[0].views[0].figure["data"]
    assert line["y"] == [1.0, 0.0]
    assert section.pictures[0].views[0].table.rows[0][2:] == ["0", "2", "full"]
    section = volumes.volumes_section(sources(progress=Source(events[:1])))
    assert section.pictures == []
    assert section.facts == [("throttle factor of each batch", "1")]
