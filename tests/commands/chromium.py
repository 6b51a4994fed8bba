"""A Chromium without a window, for tests that look at pages as a browser draws them."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Page:
    """A page in the browser."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str, wait_s: float = 60) -> None:
        """Open a report, and wait until all of it is drawn."""
        self.driver.get(address)
        self.wait("document.documentElement.dataset.drawnMs", wait_s)

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript."""
        return self.driver.execute_script(f"return ({script});")

    def wait(self, script: str, wait_s: float = 60) -> Any:
        """The value of an expression as soon as it is a true one."""
        until = time.monotonic() + wait_s
        while not (found := self.run(script)):
            assert time.monotonic() < until, f"still not: {script}"
            time.sleep(0.05)
        return found

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def scheme(self, name: str) -> None:
        """light or dark, as the system of the reader would have it."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def size(self, width: int, height: int) -> None:
        """The size of the screen; below 600 that of a telephone."""
        metrics = {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": width < 600,
        }
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def console(self) -> list[str]:
        """What the browser complained of since it was asked last."""
        return [f"{each['level']}: {each['message']}" for each in self.driver.get_log("browser")]

    def picture(self, path: Path) -> None:
        """The whole page as a PNG file."""
        width, height = self.run("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = {"captureBeyondViewport": True, "clip": clip}
        found = self.driver.execute_cdp_cmd("Page.captureScreenshot", shot)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A browser with a profile of its own; the test is skipped where there is none."""
    selenium = pytest.importorskip("selenium", reason="selenium is not installed")
    del selenium
    for each in (BROWSER, DRIVER):
        if not each.exists():
            pytest.skip(f"{each} is not on this machine")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for argument in (*_ARGUMENTS, f"--user-data-dir={profile}", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        driver.set_script_timeout(60)
        yield Page(driver)
    finally:
        driver.quit()
