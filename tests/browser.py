"""A real browser, Debian's Chromium, for tests of pages: a pytest plugin with the fixture `browser`.

What it looks at is judged by `check_page`: nothing in the console, no request but the allowed ones, no scrolling
sideways, pictures that are complete, and nothing that axe finds (https://github.com/dequelabs/axe-core).
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from waiting import wait_until

AXE = Path(__file__).parent.parent / ".venv-axe/node_modules/axe-core/axe.min.js"
ARGUMENTS = (
    *("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars", "no-first-run"),
    *("autoplay-policy=no-user-gesture-required", "disable-background-networking", "disable-component-update"),
)
# A window is never narrower than 500 px: narrower ones are emulated.
WIDTH, NARROW, HEIGHT = 1280, 400, 900
COLOURS = 20
# Pictures of a few colours are a waveform, a bar or a small image.
_PICTURES = """return [...document.images].map(image => {
    const box = image.getBoundingClientRect();
    return [image.complete && image.naturalWidth > 0, box.x, box.y + scrollY, box.width, box.height, image.className];
})"""
_INCOMPLETE = "return [...document.images].filter(image => !image.naturalWidth).map(image => image.className)"
# Those below the window are loaded lazily.
_ARE_LOADED = """return [...document.images].map(image => {
    image.loading = "eager";
    return image.complete;
}).every(Boolean)"""
_AXE = """const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(found => done(found.violations.map(
    each => `${each.id}: ${each.help}: ${each.nodes.slice(0, 3).map(node => node.html.slice(0, 200))}`)))"""


class Browser:
    """A browser with one window, at which one page is looked at after the other."""

    def __init__(self) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for argument in ARGUMENTS:
            options.add_argument(f"--{argument}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        # Selenium looks for drivers in the web unless it is told of one.
        self.driver = webdriver.Chrome(options, Service("/usr/bin/chromedriver"))

    def close(self) -> None:
        self.driver.quit()

    def look(self, width: int = WIDTH, is_night: bool = False, has_scripts: bool = True) -> None:
        """How pages are looked at from now on."""
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_night else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not has_scripts})

    def open(self, url: str) -> None:
        """Open a page, and forget what was logged before. Ends when its pictures are there, and nothing is counted."""
        self.console()
        self.requests()
        self.driver.get(url)
        wait_until(lambda: not self.driver.find_elements("css selector", "[data-counting]"))
        wait_until(lambda: self.run(_ARE_LOADED))

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def console(self) -> list[str]:
        """What the console has got since it was last asked for."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The URLs that were asked for since then, but for data in pages, and what the page's policy refused."""
        entries = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        told = [(each["method"], each["params"]) for each in entries]
        refused = {
            params["requestId"]
            for method, params in told
            if method == "Network.loadingFailed" and params.get("blockedReason") == "csp"
        }
        found = [
            params["request"]["url"]
            for method, params in told
            if method == "Network.requestWillBeSent" and params["requestId"] not in refused
        ]
        return [url for url in found if not url.startswith("data:")]

    def photograph(self) -> bytes:
        """A PNG of all of the page."""
        asked = {"captureBeyondViewport": True, "optimizeForSpeed": True}
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", asked)["data"])

    def screenshot(self) -> Image.Image:
        """All of the page."""
        return Image.open(io.BytesIO(self.photograph())).convert("RGB")

    def axe(self) -> list[str]:
        """What axe finds."""
        assert AXE.exists(), "please run .ci/setup test"
        self.driver.execute_script(AXE.read_text(encoding="utf-8"))
        found: list[str] = self.driver.execute_async_script(_AXE)
        return found

    def pictures(self) -> list[tuple[Image.Image, str]]:
        """The images of the page as they are seen, with their class. All of them are complete."""
        found, page = [], self.screenshot()
        for complete, x, y, width, height, name in self.run(_PICTURES):
            assert complete, f"an image {name} is not complete"
            if width and height:
                found.append((page.crop((int(x), int(y), int(x + width), int(y + height))), name))
        return found


def colours(picture: Image.Image) -> int:
    return len(picture.getcolors(1 << 24) or ())


def check_page(browser: Browser, url: str, shots: Path, allowed: Callable[[str], bool] | None = None) -> None:
    """Open a page wide by day and narrow by night, and judge it. A picture of each is written to `shots`."""
    may_ask = allowed or url.__eq__
    for width, is_night in ((WIDTH, False), (NARROW, True)):  # what depends on one does not depend on the other
        told = f"{url} {width} {'night' if is_night else 'day'}"
        browser.look(width, is_night)
        browser.open(url)
        name = url.rstrip("/").rpartition("/")[2].partition("?")[0] or "root"
        (shots / f"{name}-{width}{'-night' if is_night else ''}.png").write_bytes(browser.photograph())
        assert browser.run("return document.documentElement.scrollWidth") <= width, f"{told}: scrolls sideways"
        wait_until(lambda: not browser.run(_INCOMPLETE))  # a page may put another one in the place of one that fails
        assert not browser.console(), told
        assert not [each for each in browser.requests() if not may_ask(each)], told
        assert not browser.axe(), told


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for all tests of a file."""
    found = Browser()
    yield found
    found.close()
