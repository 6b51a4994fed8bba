"""Reports as a browser draws them: without complaints, by keyboard, dark and light, on a telephone,
with hostile texts and with very many key ranges.

KEYRANGE_SCREENSHOTS names a directory that gets pictures of the pages.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from brokers.scripted_admin import GB, Told, scripted_brokers
from commands.chromium import Page, browser
from commands.commanding import succeed
from keyrange.cli.http_server import ADDRESS, LocalServer
from keyrange.cli.report.commands import load_library
from keyrange.cli.report.report_inputs import Collector
from keyrange.cli.report.server import Press
from keyrange.errors import error
from keyrange.report.html import page as make_page
from keyrange.report.html import report
from keyrange.report.page_parts import Sources
from samples.report_samples import HOSTILE, Lake, many_ranges, samples, sources

pytest.importorskip("plotly", reason="plotly is not installed")
_TAB = "\ue004"
_ENTER = "\ue007"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(chromium: Page) -> Iterator[Page]:
    """Each test begins light, on a desk, and with nothing on the console."""
    chromium.scheme("light")
    chromium.size(1280, 900)
    chromium.console()
    yield chromium
    chromium.driver.get("about:blank")


@pytest.fixture(scope="module")
def lake_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of everything that a query has, with hostile errors among its dead letters."""
    root = tmp_path_factory.mktemp("lake")
    lake = Lake(root, error=HOSTILE)
    with scripted_brokers(2) as brokers:
        full = ("/var/lib/kafka/1", 1000 * GB, 60 * GB, 0)
        hostile = (f"/mnt/{HOSTILE}", 500 * GB, 410 * GB, 0)
        brokers.told[1] = Told((full, ("/var/lib/kafka/2", 1000 * GB, 350 * GB, 0)))
        brokers.told[2] = Told((hostile, ("/var/lib/kafka/2", 1000 * GB, 140 * GB, 0)))
        servers = ",".join(f"{host}:{port}" for host, port in brokers.servers)
        volumes = ["min.available.ratio=0.1", f"kafka.admin.bootstrap.servers={servers}"]
        given = [*lake.options(), *(f"--option={each}" for each in volumes)]
        succeed("report", *given, "--out", root / "page.html")
    return f"file://{root}/page.html"


def shoot(page: Page, name: str) -> None:
    if directory := os.environ.get("KEYRANGE_SCREENSHOTS"):
        page.picture(Path(directory) / f"{name}.png")


def written(made: Sources, path: Path) -> str:
    path.write_text(make_page(report(made), load_library()))
    return f"file://{path}"


def test_every_picture_is_drawn_and_the_console_is_silent(page: Page, lake_page: str) -> None:
    page.open(lake_page)
    pictures = page.run("document.querySelectorAll('.plot').length")
    assert pictures == 11
    assert page.run("document.querySelectorAll('.plot.js-plotly-plot .main-svg').length") >= 10
    empty = "[...document.querySelectorAll('.plot')].filter((e) => !e._fullData.length).length"
    assert page.run(empty) == 0
    assert page.console() == []
    shoot(page, "light")


def test_hostile_texts_run_nothing(page: Page, lake_page: str) -> None:
    page.open(lake_page)
    page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.run("window.ran === undefined")
    assert page.run("document.querySelectorAll('main img, main b, main script').length") == 0
    for plot in ("letters-errors-plot", "volume-bars-plot"):
        assert "</script><img" in page.run(f"document.getElementById('{plot}').textContent")
    # What an attribute would run is refused by the page's policy, however it came there.
    page.driver.execute_script(
        "document.body.insertAdjacentHTML('beforeend', `<img src=x onerror=\"window.ran = 1\">`)"
    )
    page.wait("document.querySelector('body > img').complete")
    assert page.run("window.ran === undefined")
    assert any("Content Security Policy" in each for each in page.console())


def test_the_colours_follow_dark_and_light(page: Page, lake_page: str) -> None:
    page.open(lake_page)
    ground = "getComputedStyle(document.body).backgroundColor"
    line = "document.getElementById('lag-lines-plot')._fullData[0].line.color"
    paper = "document.getElementById('lag-lines-plot')._fullLayout.paper_bgcolor"
    light = page.run(f"[{ground}, {line}, {paper}]")
    page.scheme("dark")
    page.wait(f"{paper} !== '{light[2]}'")
    dark = page.run(f"[{ground}, {line}, {paper}]")
    assert [one == other for one, other in zip(light, dark, strict=True)] == [False] * 3
    page.wait("document.getElementById('volume-factor-plot')._fullLayout.paper_bgcolor === "
              f"'{dark[2]}'")  # fmt: skip
    assert page.console() == []
    shoot(page, "dark")


def test_a_telephone_shows_it_without_scrolling_sideways(page: Page, lake_page: str) -> None:
    page.size(360, 740)
    page.open(lake_page)
    assert page.run("[innerWidth, document.documentElement.scrollWidth]") == [360, 360]
    page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.run("document.documentElement.scrollWidth") == 360
    wide = "[...document.querySelectorAll('.plot')].filter((e) => e._fullLayout.width > 360).length"
    assert page.run(wide) == 0
    shoot(page, "phone")


def test_the_page_can_be_walked_by_keyboard(page: Page, lake_page: str) -> None:
    page.open(lake_page)
    page.press(_TAB)
    assert page.run("document.activeElement.className") == "skip"
    assert page.run("document.activeElement.getBoundingClientRect().left >= 0")
    page.press(_ENTER)
    page.wait("document.activeElement.id === 'main'")
    reached = []
    for _ in range(60):
        page.press(_TAB)
        reached.append(
            page.run(
                "(e => e.dataset.zoom || e.dataset.choice || e.localName)(document.activeElement)"
            )
        )
    assert {"in", "out", "left", "right", "up", "down", "reset", "all"} <= set(reached)
    assert {"offset-ranges", "ring", "summary"} <= set(reached)
    outlined = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.run(outlined) == "solid"


def test_zoom_moves_along_and_back(page: Page, lake_page: str) -> None:
    page.open(lake_page)
    of = "document.getElementById('{}-plot')._fullLayout.{}.range.map(String)"

    def press(name: str, how: str) -> tuple[list[str], list[str]]:
        page.driver.execute_script(
            f"document.querySelector('[data-of={name}][data-zoom={how}]').click()"
        )
        page.run("new Promise((done) => requestAnimationFrame(done))")
        return page.run(of.format(name, "xaxis")), page.run(of.format(name, "yaxis"))

    before = page.run(of.format("offset-ranges", "xaxis"))
    x, y = press("offset-ranges", "in")
    assert float(x[1]) - float(x[0]) == pytest.approx((float(before[1]) - float(before[0])) / 2)
    assert [float(each) for each in y] == [25, 75]
    assert [float(each) for each in press("offset-ranges", "up")[1]] == [37.5, 87.5]
    x, y = press("offset-ranges", "reset")
    assert (x, [float(each) for each in y]) == (before, [0, 100])
    dates = page.run(of.format("lag-lines", "xaxis"))
    right, _ = press("lag-lines", "right")
    assert dates[0] < right[0] < dates[1] < right[1]
    assert press("lag-lines", "reset")[0] == dates


def test_a_choice_shows_another_view_with_its_table(page: Page, lake_page: str) -> None:
    page.open(lake_page)
    page.driver.execute_script(
        "const e = document.getElementById('offset-ranges-choice'); e.value = '2';"
        "e.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    label = page.run("document.getElementById('offset-ranges-choice').selectedOptions[0].text")
    partition = label.split(",")[0]
    page.wait(
        f"document.getElementById('offset-ranges-summary').textContent.startsWith('{partition}')"
    )
    caption = page.run("document.querySelector('#offset-ranges-table caption').textContent")
    assert caption == f"The key ranges of {partition}"


# Labels of pictures that are cut at the edge, or lie upon one another.
_BAD_LABELS = """(() => {
  const found = [];
  for (const plot of document.querySelectorAll('.plot')) {
    const edge = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll('text')]
      .map((each) => ({ said: each.textContent, at: each.getBoundingClientRect() }))
      .filter(({ said, at }) => said.trim() && at.width);
    texts.forEach(({ said, at }, index) => {
      if (at.left < edge.left - 1 || at.right > edge.right + 1 || at.top < edge.top - 1 ||
          at.bottom > edge.bottom + 1) found.push(`${plot.id}: ${said} is cut`);
      for (const other of texts.slice(index + 1)) {
        const wide = Math.min(at.right, other.at.right) - Math.max(at.left, other.at.left);
        const high = Math.min(at.bottom, other.at.bottom) - Math.max(at.top, other.at.top);
        if (wide > 1 && high > 2) found.push(`${plot.id}: ${said} lies upon ${other.said}`);
      }
    });
  }
  return found;
})()"""


def test_ten_thousand_key_ranges_are_drawn(
    page: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = written(many_ranges(10_000), tmp_path / "many.html")
    page.open(address)
    drawing, drawn = page.run(
        "[document.documentElement.dataset.drawingMs, document.documentElement.dataset.drawnMs]"
    )
    size = (tmp_path / "many.html").stat().st_size / 1e6
    with capsys.disabled():
        print(f"\n10,000 key ranges: drawn in {drawing} ms, {drawn} ms from the start of the load,")
        print(f"page of {size:.1f} MB, of which plotly.js {len(load_library()) / 1e6:.1f} MB")
    traces = page.run("document.getElementById('offset-ranges-plot')._fullData.length")
    assert traces >= 6
    assert (page.run(_BAD_LABELS), page.console()) == ([], [])
    shoot(page, "many")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sources]:
    return samples(tmp_path_factory.mktemp("samples"))


# A scheme changes colours alone.
SCHEMES = {520: "light", 1600: "dark"}


# The two pages that have the most are drawn, in one width each. Very many key ranges are drawn
# above, in a third.
@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("broken", 520),
        ("held", 1600),
        *(
            pytest.param(name, width, marks=pytest.mark.slow)
            for name in ("broken", "held", "healthy", "one", "many")
            for width in SCHEMES
            if (name, width) not in (("broken", 520), ("held", 1600))
        ),
    ],
)
def test_no_label_is_cut_or_lies_upon_another(
    page: Page, tmp_path: Path, made: dict[str, Sources], name: str, width: int
) -> None:
    page.scheme(SCHEMES[width])
    page.size(width, 900)
    page.open(written(made[name], tmp_path / f"{name}.html"))
    shoot(page, f"{name}-{width}-{SCHEMES[width]}")
    assert (page.run(_BAD_LABELS), page.console()) == ([], [])
    assert page.run("(e => e.scrollWidth === e.clientWidth)(document.documentElement)")


def test_a_served_page_is_brought_up_to_date_and_says_when_it_is_not(page: Page) -> None:
    class Told:
        sources = sources()
        failure: Exception | None = None

        def collect(self) -> Sources:
            if self.failure is not None:
                raise self.failure
            return self.sources

    told = Told()
    press = Press(cast(Collector, told), load_library(), 200)
    with LocalServer(0, press.answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        page.open(f"http://{ADDRESS}:{server.server_port}/")
        page.driver.execute_script(
            "document.querySelector('#offset-bars details').open = true;"
            "document.querySelector('[data-of=offset-bars][data-zoom=in]').focus();"
            "document.querySelector('[data-of=offset-bars][data-zoom=in]').click()"
        )
        zoomed = page.run(
            "document.getElementById('offset-bars-plot')._fullLayout.xaxis.range.map(String)"
        )
        rows = [{**row, "planned": 2_345} for row in told.sources.checkpoint["positions"]]
        changed = {**told.sources.checkpoint, "positions": rows}
        told.sources = replace(told.sources, checkpoint=changed)
        press.print_anew()
        page.wait("document.querySelector('#offset-bars-table').textContent.includes('2,255')")
        assert page.run("document.querySelector('#offset-bars details').open")
        assert page.run("document.activeElement.dataset.zoom") == "in"
        after = "document.getElementById('offset-bars-plot')._fullLayout.xaxis.range.map(String)"
        assert page.run(after) == zoomed
        told.failure = error("INVALID_CHECKPOINT_PATH", "it is <gone>")
        press.print_anew()
        page.wait("document.getElementById('stale').textContent.includes('it is <gone>')")
        told.failure = None
        press.print_anew()
        page.wait("document.getElementById('stale').textContent === ''")
        assert page.console() == []
        server.shutdown()
    page.wait("document.getElementById('stale').textContent.includes('does not answer')")
