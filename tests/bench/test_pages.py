"""The tables of the pages: made from the JSON that is kept with them, and from nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "ci"))

from bench import pages  # noqa: E402
from bench.tables import TABLES  # noqa: E402

PAGE = Path("page.md")
BEGIN, END = "<!-- figures: plan -->\n", "<!-- end of figures -->"


def document(scale: str = "full", **changes: Any) -> dict[str, Any]:
    """A run of the group `plan`."""
    figure = {"group": "plan", "name": "plan.10k.seconds", "value": 0.4321, "unit": "s"}
    return {
        "run": {
            "scale": scale,
            "repetitions": 5,
            "started": "2031-02-03T04:05:06+00:00",
            "commit": "0123456789abcdef",
            "changed": False,
        },
        "machine": {"cores": 2, "cpu": "some processor", "load_at_start": 0.1},
        "groups": [{"name": "plan", "seconds": 1.0, "failed": False}],
        "figures": [figure | {"min": 0.4, "max": 0.5, "runs": 5, "samples": [0.4321] * 5}],
    } | changes


def made(tmp_path: Path, *documents: dict[str, Any]) -> str:
    """What a page with one empty section becomes."""
    files = []
    for number, each in enumerate(documents):
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps(each))
    text = f"before\n{BEGIN}{END}\nafter\n"
    groups = pages.measured(files)
    once = pages.made_pages({PAGE: text}, groups)
    assert pages.made_pages(once, groups) == once
    return once[PAGE]


def test_the_pages_say_what_the_files_that_are_kept_with_them_prove() -> None:
    kept = sorted(map(str, pages.KEPT.glob("*.json")))
    command = [sys.executable, "-m", "bench.pages", "--check", *kept]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "ci")}
    told = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_a_table_says_how_its_run_was_made_and_has_medians_with_their_range(
    tmp_path: Path,
) -> None:
    page = made(tmp_path, document())
    assert page.startswith(f"before\n{BEGIN}")
    assert page.endswith(f"{END}\nafter\n")
    assert "Full run of 2031-02-03" in page
    assert "5 repetitions" in page
    assert "2 cores (some processor)" in page
    assert "commit 012345678." in page
    assert "| first plan of 10,000 partitions, from a broker | 0.432 s (0.4 to 0.5) |" in page


def test_figures_of_before_stand_beside_those_of_now_on_the_page_of_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "BEFORE", {"plan.10k.seconds": "1.9 to 2.6"})
    figures = {each["name"]: each for each in document()["figures"]}
    groups = {"plan": pages.Measured(document(), figures)}
    empty = f"{BEGIN}{END}"
    made = pages.made_pages({pages.KEPT.with_suffix(".md"): empty, PAGE: empty}, groups)
    all_figures, other = made.values()
    assert "| figure | value (range) | before |\n|---|---|---|" in all_figures
    assert "| 0.432 s (0.4 to 0.5) | 1.9 to 2.6 s |" in all_figures
    assert "before" not in other


def test_what_was_before_is_of_figures_that_are_measured() -> None:
    told = {names[0] for table in TABLES.values() for names in table.rows.values()}
    assert pages.BEFORE.keys() <= told


def test_a_quick_run_is_labelled_as_such(tmp_path: Path) -> None:
    page = made(tmp_path, document("quick"))
    assert "**Quick run, not a full one:**" in page
    assert "Full run" not in page


def test_a_group_without_a_run_has_no_figures(tmp_path: Path) -> None:
    assert "No run of this group is kept; `bash ci/bench.sh --only plan`" in made(tmp_path)


@pytest.mark.parametrize(
    ("documents", "reason"),
    [
        ([document("tiny")], "tiny"),
        ([document(), document()], "another file"),
        ([document(groups=[{"name": "plan", "failed": True}])], "failed"),
        ([document(figures=[])], r"no figure plan\.10k\.seconds"),
    ],
)
def test_files_that_do_not_prove_a_table_are_refused(
    tmp_path: Path, documents: list[dict[str, Any]], reason: str
) -> None:
    with pytest.raises(pages.RefusedError, match=reason):
        made(tmp_path, *documents)


MARK = "<!-- figure: plan plan.10k.seconds -->"


def in_a_line(text: str) -> str:
    figures = {each["name"]: each for each in document()["figures"]}
    groups = {"plan": pages.Measured(document(), figures)}
    return pages.made_pages({PAGE: text}, groups)[PAGE]


def test_a_line_has_the_value_of_a_figure_between_its_marks() -> None:
    text = f"It plans in {MARK}9 s<!-- end -->, and again in {MARK}<!-- end -->.\n"
    made = f"It plans in {MARK}0.432 s<!-- end -->, and again in {MARK}0.432 s<!-- end -->.\n"
    assert in_a_line(text) == made
    assert in_a_line(made) == made


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{MARK}9 s", "no end"),
        ("9 s<!-- end -->", "no beginning"),
        (f"{MARK}9\ns<!-- end -->", "no end"),
        ("<!-- figure: plan -->9 s<!-- end -->", "no name"),
        ("<!-- figure: plan plan.nothing -->9 s<!-- end -->", r"no figure plan\.nothing"),
        ("<!-- figure: other plan.10k.seconds -->9 s<!-- end -->", "no file has group other"),
    ],
)
def test_a_figure_that_no_run_proves_is_refused(text: str, reason: str) -> None:
    with pytest.raises(pages.RefusedError, match=reason):
        in_a_line(text)


@pytest.mark.parametrize("text", [BEGIN, f"<!-- figures: nothing -->\n{END}", END])
def test_a_section_that_cannot_be_made_is_refused(text: str) -> None:
    with pytest.raises(pages.RefusedError, match=r"page\.md"):
        pages.made_pages({PAGE: text}, {})


SHORT = "<!-- figures: shortfalls -->\n"


def shortfalls(group: str, **values: float) -> list[str]:
    """The rows of a page of some figures."""
    run = {"unit": "ratio", "runs": 1}
    figures = {name: {"name": name, "value": value, **run} for name, value in values.items()}
    measured = {group: pages.Measured(document(), figures)}
    text = pages.made_pages({PAGE: f"{SHORT}{END}"}, measured)[PAGE]
    return [line for line in text.splitlines() if line.startswith("| ")][1:]


def test_figures_that_miss_their_targets_are_named_with_the_reason() -> None:
    given = {"read.1KB.lz4.vs_jvm": 1.5, "read.1KB.none.vs_jvm": 9.0, "read.1KB.zstd.vs_jvm": 1.6}
    first, second = shortfalls("read", **given)
    label = "`read`: 1 KB, lz4: beside the JVM connector"
    assert first.startswith(f"| {label} | 1.5 times | >= 2 | decompressing")
    assert second == f"| {label.replace('lz4', 'zstd')} | 1.6 times | >= 2 | as above |"


def test_a_figure_that_misses_its_target_without_a_reason_is_refused() -> None:
    with pytest.raises(pages.RefusedError, match="nothing says why"):
        shortfalls("plan", **{"plan.10k.seconds": 9.0})
