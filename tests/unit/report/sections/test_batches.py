"""The chapter about batches, by what it draws."""

from __future__ import annotations

import pytest

from keyrange.cli.values import iso
from keyrange.report.page_parts import Source
from keyrange.report.sections import batches
from samples.commit_samples import BATCH_MS, BEGAN_MS
from samples.report_documents import commits, told
from samples.report_samples import sources


def test_batches_have_a_row_for_each_measure_that_is_known() -> None:
    """What is said of a batch's portions stands in the progress of the next one."""
    events = [
        told(0, [1, 1]),
        told(1, [1, 1], members={"ownPortions": 3, "foreignPortions": 1, "unownedPortions": 0}),
    ]
    plan = {"bytes": 4096, "read_amplification": {"one_executor": 1.25, "without_sharing": 3.0}}
    made = sources(progress=Source(events), plans=Source({1: plan}))
    rows = {each["name"]: each["y"] for each in batches.figure(batches.batches_of(made))["data"]}
    assert rows == {
        "rows per second": [pytest.approx(4.67, abs=0.01)] * 2,
        "records": [7, 7],
        "offsets": [20, 20],
        "bytes (sampled)": [None, 4096],
        "duration, s": [1.5, 1.5],
        "read amplification": [None, 1.25],
        "read by owners": [0.75, None],
    }
    table = batches.batches_section(made).pictures[0].views[0].table
    assert table.rows[0][:3] == ["1", "2026-05-28 20:26:50", "planned"]
    assert table.columns[3:6] == ["rows per second", "duration, s", "records"]
    assert table.rows[0][3:8] == ["5", "1.5 s", "7", "20", "4.00 KiB"]


def test_the_querys_own_figures_of_a_batch_are_in_the_progress_of_the_next_one() -> None:
    events = [
        told(0, [1, 1], plan={"number": 4, "bytes": 1_000, "fetchedBytes": 1_500}),
        told(1, [1, 1], plan={"number": 5, "bytes": 2_000, "fetchedBytes": 5_000}),
        told(2, [1, 1], plan={"number": 5, "bytes": 2_000, "fetchedBytes": 5_000}),
        told(3, [1, 1], plan={"number": 1, "bytes": 7, "fetchedBytes": 7}, run_id="run-2"),
    ]
    plans = {at: {"bytes": 9, "read_amplification": {"one_executor": 1.0}} for at in (0, 1)}
    found = batches.batches_of(sources(progress=Source(events), plans=Source(plans)))
    assert [(each.bytes, each.amplification) for each in found] == [
        (2_000, 2.5),
        (9, 1.0),
        (None, None),
        (None, None),
    ]


def test_a_batch_that_is_not_committed_has_a_pattern() -> None:
    [offsets_row] = batches.figure(batches.batches_of(sources()))["data"]
    assert offsets_row["marker"]["pattern"]["shape"] == ["", "/"]


def test_a_batch_is_a_bar_at_its_time_and_nearly_until_the_next_one() -> None:
    """Not through a pause of the query, and not so short that nobody sees it."""
    starts = [0, 10_000, 20_000, 3_600_000]
    assert batches.bar_widths(starts, [1_000] * 4) == [9_000, 9_000, 27_000, 9_000]
    assert min(batches.bar_widths([*starts, 86_400_000], [None] * 5)) == 0.9 * 86_400_000 / 400
    # A clock that was put back.
    assert min(batches.bar_widths([5_000, 4_000, 3_000], [None] * 3)) > 0
    made = batches.batches_of(sources())
    [bars] = batches.figure(made)["data"]
    assert bars["x"] == [BEGAN_MS, BEGAN_MS + BATCH_MS]
    assert (bars["width"], bars["offset"]) == ([9_000, 9_000], 0)
    assert bars["customdata"][1][1:] == ["1", "planned", "2026-05-28 20:26:50"]


def test_a_single_batch_is_one_narrow_bar_on_an_axis_of_times() -> None:
    made = batches.batches_of(sources(progress=Source([told(0, [0, 0])])))[:1]
    figure = batches.figure(made)
    assert {tuple(each["x"]) for each in figure["data"]} == {(BEGAN_MS,)}
    axis = figure["layout"]["xaxis"]
    assert axis["type"] == "date"
    begin, end = axis["range"]
    [width] = figure["data"][0]["width"]
    assert begin < BEGAN_MS < BEGAN_MS + width < end
    assert width < (end - begin) / 10
    # It does not run into what has not come yet.
    assert end < BEGAN_MS + 2 * width
    [picture] = batches.batches_section(sources()).pictures
    assert picture.views[0].summary.startswith("Batches 0 to 1 by the time at which they were")


def test_measures_of_which_there_is_nothing_have_no_row() -> None:
    made = sources(progress=Source([told(0, [0, 0], records=0), told(1, [0, 0], records=0)]))
    drawn = [each.title for each in batches.drawn(batches.batches_of(made))]
    assert drawn == ["duration, s", "offsets"]
    # That no portion was read by its owner is worth a row.
    members = {"ownPortions": 0, "foreignPortions": 1, "unownedPortions": 0}
    made = sources(progress=Source([told(0, [0, 0]), told(1, [0, 0], members=members)]))
    assert "read by owners" in [each.title for each in batches.drawn(batches.batches_of(made))]


def test_what_became_of_records_is_drawn_where_some_were_not_done() -> None:
    usual = {"batch_id": 5, "seq": 9, "committed_at": iso(BEGAN_MS), "done": 10}
    row = usual | {"redelivered": 0, "held_back": 0, "rejected": 2, "dead": 0}
    document = {**commits().document, "history": [row]}
    [_, picture] = batches.batches_section(sources(commits=Source(document))).pictures
    figure = picture.views[0].figure
    assert [each["name"] for each in figure["data"]] == ["done", "rejected"]
    assert figure["data"][1]["x"] == ["5"]
    axis = figure["layout"]["xaxis"]
    # One bar among the places of six.
    assert (axis["type"], axis["range"]) == ("category", [-0.5, 5.5])
    document = {**document, "history": [row | {"rejected": 5, "dead": 3}]}
    given_up = batches.batches_section(sources(commits=Source(document))).pictures[-1]
    drawn = {each["name"]: each["y"] for each in given_up.views[0].figure["data"]}
    # Those that are dead are rejected as well, and are drawn once.
    assert (drawn["rejected"], drawn["dead"]) == ([2], [3])
    document = {**document, "history": [row | {"rejected": 0}]}
    section = batches.batches_section(sources(commits=Source(document)))
    assert [each.name for each in section.pictures] == ["batch-rows"]
    assert section.notes == ["Every record of these batches was done when it was delivered first."]
