"""The pages of `touchfs serve` in a real browser: complete, quiet, readable, and harmless whatever the data are."""

import json
import os

import pytest
from browser import COLOURS, check_page, colours
from served_pages import tone
from tars import write_tar
from tree_servers import in_this_process, serving
from waiting import wait_until

from touchfs.indexing import open_dataset
from touchfs.pages import listing

pytestmark = pytest.mark.variant

MONDAY = "-/sample/000000000/talks/monday"
EVIL = "<script>alert(1)</script>\"'onx=1 </title></style>--> {{7*7}} &lt; \u202egpj\u200b"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(2)"><script>alert(1)</script></svg>'


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A server of hostile samples."""
    segment = {"start": 0, "end": 0.5, "text": f"{EVIL}\0\x1b[31m", "speaker": EVIL}
    files = {
        "a.wav": tone(1.0),
        "a.json": json.dumps({"segments": [segment], EVIL: EVIL, EVIL * 1000: [EVIL]}).encode(),
        "a.txt": EVIL.encode() + b"\0\xff\xfe\x80",
        f"k{EVIL.replace('/', '')}.txt": EVIL.encode(),
        "page.html": b"<script>alert(1)</script><img src=x onerror=alert(2)>",
        "page.js": b"document.title = 'run'",
        "page.svg": SVG,
        "page.png": SVG,
        "broken.wav": b"RIFF no wav",
    }
    with serving(write_tar(tmp_path_factory.mktemp("evil") / "evil.tar", files)) as server:
        yield server


def pressed(browser, *keys):
    from selenium.webdriver import ActionChains

    ActionChains(browser.driver).send_keys(*keys).perform()


def slider(browser):
    return browser.run("return document.querySelector('[role=slider]')")


@pytest.mark.parametrize(
    "path",
    [
        "",
        MONDAY,
        MONDAY + "?t=0.5,1",
        "-/samples",
        "-/samples?where=segments+%3E+",
        "-/samples?of=segments",
        "-/errors",
    ],
)
def test_a_page(browser, served, tmp_path, path):
    if "%3E" in path:  # a filter that is wrong answers 400, which the console tells
        browser.look()
        browser.open(served.url + path)
        assert len(browser.console()) == 1 and not browser.axe()
        return
    check_page(browser, served.url + path, tmp_path, lambda url: url.startswith(served.url))


def test_a_list_shows_no_broken_picture(browser, evil):
    browser.look()
    browser.open(evil.url + "-/samples")
    row = "document.querySelector('a.row[href$=\"/broken\"]').closest('tr')"
    wait_until(lambda: browser.run(f"return {row}.querySelector('.none') !== null"))
    assert not browser.run(f"return {row}.querySelector('img')")


def test_pictures_are_seen(browser, served):
    browser.look()
    browser.open(served.url + MONDAY)
    found = {name: colours(picture) for picture, name in browser.pictures()}
    assert found["wave"] > COLOURS and found["spectrogram"] > COLOURS


def test_a_segment_is_played_as_training_reads_it(browser, served):
    browser.look()
    browser.open(served.url + MONDAY)
    browser.requests()
    browser.run("document.querySelector('a[data-segment=\"1\"]').click()")
    time = "return +document.querySelector('[role=slider]').ariaValueNow"
    marked = (
        "return [...document.querySelectorAll('.segments [aria-current], .speech [aria-current]')]"
        ".map(each => each.id || each.dataset.segment)"
    )
    wait_until(lambda: 0.642 < browser.run(time) < 1.296 and browser.run(marked) == ["1", "segment-1"])
    wait_until(lambda: browser.run("return document.querySelector('.controls .play').textContent") == "▶")
    assert browser.run(time) == pytest.approx(1.296, abs=0.02)
    heard = [url for url in browser.requests() if url.endswith(".wav")]
    assert set(heard) == {f"{served.url}segments/000000000/talks/monday/0001.wav"}


def test_keys(browser, served):
    from selenium.webdriver import Keys

    browser.look()
    browser.open(served.url + MONDAY)
    slider(browser).send_keys(Keys.ARROW_RIGHT)
    assert slider(browser).get_attribute("aria-valuetext") == "0.01 of 1.30 seconds, segment 0: Good morning."
    slider(browser).send_keys(Keys.END)
    assert slider(browser).get_attribute("aria-valuetext").startswith("1.30 of 1.30")
    pressed(browser, "]")
    wait_until(lambda: browser.driver.current_url.partition("?")[0] != served.url + MONDAY)
    pressed(browser, "[")
    wait_until(lambda: browser.driver.current_url.partition("?")[0] == served.url + MONDAY)
    browser.open(served.url)
    pressed(browser, "j", "j", "k", "j")
    assert browser.run("return document.activeElement.textContent") == "talks/tuesday"
    pressed(browser, "/")
    assert browser.run("return document.activeElement.id") == "where"
    pressed(browser, "j")
    assert browser.run("return document.activeElement.value") == "j"
    browser.run("document.activeElement.blur()")
    pressed(browser, "?")
    assert browser.run("return document.querySelector('.keys').checkVisibility()")


def test_segments_are_played_by_keys_and_clicks(browser, served):
    from selenium.webdriver import Keys

    browser.look()
    browser.open(served.url + MONDAY)

    def plays(act, begin, end):
        act()
        now = "return +document.querySelector('[role=slider]').ariaValueNow"
        wait_until(lambda: begin < browser.run(now) < end)
        wait_until(lambda: browser.run("return document.querySelector('.controls .play').ariaLabel") == "Play")
        assert browser.run(now) == pytest.approx(end, abs=0.02)

    ends = browser.run("return [...document.querySelectorAll('tr[data-end]')].map(row => +row.dataset.end)")
    plays(lambda: slider(browser).send_keys(Keys.PAGE_DOWN), 0.642, ends[1])
    plays(lambda: browser.driver.find_element("css selector", '.speech [data-segment="0"]').click(), 0, ends[0])
    plays(lambda: slider(browser).send_keys(Keys.HOME, Keys.SPACE), 0, 1.296)
    plays(lambda: slider(browser).send_keys(Keys.PAGE_UP), 0.642, ends[1])
    plays(lambda: slider(browser).send_keys(Keys.HOME, Keys.ENTER), 0, ends[0])
    slider(browser).send_keys(Keys.HOME, Keys.SPACE, Keys.END)  # who moves the head has it there
    assert slider(browser).get_attribute("aria-valuetext").startswith("1.30 of 1.30")
    assert browser.run("return document.querySelector('.controls .play').ariaLabel") == "Play"


def test_long_recordings_are_not_fetched_to_be_played_from_the_middle(browser, tmp_path):
    with serving(write_tar(tmp_path / "t.tar", {"hour.wav": tone(900.0)})) as server:
        browser.look()
        browser.open(f"{server.url}-/sample/t/hour")
        browser.driver.get_log("performance")
        view = slider(browser)
        from selenium.webdriver import ActionChains

        ActionChains(browser.driver).move_to_element_with_offset(
            view, int(0.4 * view.size["width"]), 5
        ).click().perform()
        assert float(view.get_attribute("aria-valuenow")) == pytest.approx(810, abs=2)
        browser.driver.find_element("css selector", ".controls .play").click()
        wait_until(lambda: float(view.get_attribute("aria-valuenow")) > 812)
        entries = [json.loads(each["message"])["message"] for each in browser.driver.get_log("performance")]
        answers = [each["params"]["response"] for each in entries if each["method"] == "Network.responseReceived"]
        ranges = [each["headers"]["Content-Range"] for each in answers if each["status"] == 206]
        assert any(int(each.split()[1].partition("-")[0]) > 12_000_000 for each in ranges), ranges


def test_tab_reaches_all_in_order(browser, served):
    from selenium.webdriver import Keys

    browser.look()
    for path in (MONDAY + "?t=0.5,1", "-/samples", ""):
        browser.open(served.url + path)
        wanted = browser.run(
            "return [...document.querySelectorAll('a[href], button, input, select, [tabindex]')]"
            ".filter(each => each.checkVisibility()).map((each, number) => (each.number = number))"
        )
        reached = []
        for _ in wanted:
            pressed(browser, Keys.TAB)
            reached.append(browser.run("return document.activeElement.number ?? null"))
        assert len(wanted) > 15 and reached == wanted


def test_keys_can_be_switched_off(browser, served):
    """They stay off on the next page, and on again."""
    focused = "return document.activeElement.className"
    browser.look()
    browser.open(served.url)
    browser.driver.find_element("id", "help").click()
    browser.driver.find_element("id", "letters").click()
    pressed(browser, "j")
    browser.open(served.url + "-/samples")
    pressed(browser, "j", "?")
    assert browser.run(focused) != "row" and not browser.run("return document.querySelector('.keys').checkVisibility()")
    browser.driver.find_element("id", "help").click()
    browser.driver.find_element("id", "letters").click()
    pressed(browser, "j")
    assert browser.run(focused) == "row"
    pressed(browser, "?")
    assert not browser.run("return document.querySelector('.keys').checkVisibility()")


def dragged(browser, first, last):
    """Drag over the picture of a recording, between two shares of its width."""
    from selenium.webdriver import ActionChains

    view = slider(browser)
    width = view.size["width"]
    begin, end = (int((share - 0.5) * width) for share in (first, last))
    actions = ActionChains(browser.driver).move_to_element_with_offset(view, begin, 0).click_and_hold()
    actions.move_by_offset((end - begin) // 2, 0).move_by_offset((end - begin + 1) // 2, 0).release().perform()


def test_zoom_by_keys_and_by_dragging(browser, served):
    browser.look()
    browser.open(served.url + MONDAY)

    def seen():
        asked = browser.driver.current_url.partition("?t=")[2].replace("%2C", ",")
        return [float(each) for each in asked.split(",") if each]

    pressed(browser, "+")
    wait_until(lambda: seen() == [0.324, 0.972])
    assert slider(browser).get_attribute("aria-valuetext").startswith("0.32 of 1.30 seconds, segment 0: Good morning.")
    pressed(browser, ">")
    wait_until(lambda: seen() == [0.648, 1.296])
    assert browser.run("return [...document.querySelectorAll('.segments tbody tr')].map(row => row.id)") == [
        "segment-1"
    ]
    pressed(browser, "0")
    wait_until(lambda: not seen())
    dragged(browser, 0.25, 0.75)
    wait_until(lambda: seen())
    assert seen() == pytest.approx([0.324, 0.972], abs=0.01)
    browser.driver.find_element("css selector", ".overview a").click()
    wait_until(lambda: seen() == [0.0, 0.108])


def test_a_bar_leads_to_what_it_counts(browser, served):
    browser.look()
    browser.open(served.url)
    browser.run("document.querySelector('.bars a').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    wait_until(lambda: "where=duration" in browser.driver.current_url)
    assert browser.run("return document.querySelectorAll('a.row').length") >= 1


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """The URL of a search over 80 samples, each request of which looks at one. It finds every second one."""
    monkeypatch.setattr(listing, "_SEARCH_SECONDS", 0.0)
    files = {}
    for number in range(80):
        files[f"{number:02}{EVIL.replace('/', '')}.txt"] = f"{('even', 'odd')[number % 2]} {EVIL}".encode()
    files["z.wav"] = tone(1.0)
    with in_this_process(open_dataset(os.fspath(write_tar(tmp_path / "s.tar", files)), in_place=True)) as port:
        yield f"http://127.0.0.1:{port}/-/samples?where=key+%3D%3D+%22z%22+or+text+contains+%22odd%22"


def keys_of(browser):
    return [row.text[:2] for row in browser.driver.find_elements("css selector", "a.row")]


def wait_for_state(browser, state):
    wait_until(lambda: browser.run("return document.getElementById('state').textContent") == f" · {state}")


def test_a_search_goes_on_by_itself(browser, searched):
    """All that is found is in order, once, and it is text."""
    browser.look()
    browser.open(searched)
    wait_for_state(browser, "all searched")
    assert keys_of(browser) == [*(f"{number:02}" for number in range(1, 80, 2)), "z"]
    told = browser.run("return document.getElementById('told').textContent")
    assert told.startswith("41 found in 1 – 81 of 81 · all searched")
    assert not browser.run("return document.querySelector('[onx], main script, main style, progress, #following')")
    browser.run("for (const image of document.images) image.loading = 'eager'")
    wait_until(lambda: browser.run("return [...document.images].every(image => image.complete && image.naturalWidth)"))
    assert not browser.console()
    asked = [url for url in browser.requests() if "from=" in url]
    assert len(asked) == len({*asked}) == 80


def test_a_search_ends_when_nobody_looks(browser, searched):
    browser.look()
    browser.open(searched)
    searching = "document.getElementById('told').dataset.searched"
    wait_until(lambda: int(browser.run(f"return {searching}")) > 3)
    browser.run("document.getElementById('stop').click()")
    browser.requests()
    stopped = browser.run(f"return new Promise(done => setTimeout(() => done({searching}), 500))")
    assert browser.run(f"return {searching}") == stopped
    assert len([url for url in browser.requests() if "from=" in url]) <= 1
    browser.run("document.getElementById('stop').click()")
    wait_until(lambda: int(browser.run(f"return {searching}")) > int(stopped))
    browser.run("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    hidden = browser.run(f"return new Promise(done => setTimeout(() => done({searching}), 500))")
    assert browser.run(f"return new Promise(done => setTimeout(() => done({searching}), 500))") == hidden
    browser.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    wait_for_state(browser, "all searched")
    assert len(keys_of(browser)) == 41


def test_a_search_can_be_looked_at(browser, searched, tmp_path):
    check_page(browser, searched, tmp_path, lambda url: url.startswith(searched.partition("-/")[0]))


def test_without_scripts(browser, served):
    browser.look(has_scripts=False)
    browser.open(served.url + MONDAY)
    (sound,) = browser.driver.find_elements("css selector", "audio")
    assert sound.is_displayed()
    assert not browser.driver.find_element("css selector", ".controls").is_displayed()
    browser.driver.find_element("css selector", "header nav a:nth-child(2)").click()
    wait_until(lambda: browser.driver.current_url == served.url + "-/samples")
    field = browser.driver.find_element("css selector", "#where")
    field.send_keys('text contains "talk"')
    field.submit()
    wait_until(lambda: "where=" in browser.driver.current_url)
    assert [row.text for row in browser.driver.find_elements("css selector", "a.row")] == ["talks/monday"]
    browser.look()


@pytest.mark.parametrize("number", range(5))
def test_hostile_data_are_texts(browser, evil, number):
    browser.look()
    browser.open(evil.url + "-/samples")
    rows = [row.get_attribute("href") for row in browser.driver.find_elements("css selector", "a.row")]
    assert len(rows) == 4
    browser.open([evil.url, *rows][number])
    key = browser.run("return document.querySelector('h1').textContent")
    assert "alert" not in browser.driver.title or "<script>" in browser.driver.title
    assert browser.run("return document.scripts.length") == 1
    assert not browser.run("return document.querySelector('[onx], main script, main style, main base')")
    assert not [url for url in browser.requests() if not url.startswith(evil.url)]
    # A picture that cannot be drawn has a status that says so.
    assert not [line for line in browser.console() if "/-/" not in line]
    if key != "broken":
        visible = browser.run("return document.body.innerText")
        assert "<script>alert(1)</script>" in visible or key == "page"
        assert "\u202e" not in visible


@pytest.mark.parametrize("name", ["html", "svg", "js"])
def test_files_of_data_run_nothing(browser, evil, name):
    """An alert would fail the next command."""
    browser.look()
    browser.driver.get(f"{evil.url}shards/evil/page.{name}")
    assert browser.driver.title != "run"
    browser.open(evil.url)
    assert browser.run("return 1") == 1


def test_a_picture_of_data_runs_nothing(browser, evil):
    browser.look()
    browser.open(evil.url + "-/samples")
    browser.run("const e = new Image(); e.id = 'evil'; e.src = '/shards/evil/page.svg'; document.body.append(e)")
    wait_until(lambda: browser.run("return document.getElementById('evil').complete"))
    assert browser.run("return document.getElementById('evil').naturalWidth") > 0


# An element, and what is done to it before it becomes a part of the page; and then.
ATTEMPTS = {
    "script": ("script", "e.setAttribute('src', '/shards/evil/page.js')", ""),
    "module": ("script", "e.type = 'module'; e.src = '/shards/evil/page.js'", ""),
    "text": ("script", "e.textContent = 'document.title = 1'", ""),
    "markup": ("p", "e.innerHTML = '<img src=x onerror=alert(1)>'", ""),
    "handler": ("img", "e.setAttribute('onerror', 'document.title = 1'); e.src = '/none'", ""),
    "link": ("a", "e.href = 'javascript:document.title = 1'", "e.click()"),
    "base": ("base", "e.href = 'http://localhost:1/'", ""),
    "style": ("style", "e.textContent = 'body { display: none }'", ""),
    "image": ("img", "e.src = 'http://localhost:1/'", ""),
    "form": ("form", "e.action = 'http://localhost:1/'", "e.submit()"),
    "frame": ("iframe", "e.src = '/'", ""),
    "fetch": ("p", "fetch('http://localhost:1/').catch(() => 0)", ""),
    "eval": ("p", "setTimeout('document.title = 1')", ""),
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_the_policy_refuses(browser, evil, attempt):
    browser.look()
    browser.open(evil.url + "-/errors")
    title, url = browser.driver.title, browser.driver.current_url
    browser.requests()
    kind, before, after = ATTEMPTS[attempt]
    act = f"const e = document.createElement('{kind}'); {before}; document.body.append(e); {after}"
    refused = browser.run(f"try {{ {act} }} catch (error) {{ return String(error) }}")
    told = [refused] if refused else wait_until(browser.console)
    assert any(
        "TrustedScript" in line or "TrustedHTML" in line or "Content Security Policy" in line for line in told
    ), told
    assert (browser.driver.title, browser.driver.current_url, browser.run("return document.baseURI")) == (
        title,
        url,
        url,
    )
    assert browser.run("return getComputedStyle(document.body).display") == "block"
    assert not [each for each in browser.requests() if not each.startswith(evil.url)]
