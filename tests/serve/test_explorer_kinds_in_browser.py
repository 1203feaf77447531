"""Pages of every kind of data, and of lists and states that were given at the start, in a real browser."""

import io
import json
import os
import subprocess
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from browser import check_page
from interleaved_tars import make_image, make_wds_tar, mint_sample
from served_pages import tone, values
from tars import write_tar
from tree_servers import in_this_process, serving
from waiting import wait_until

from touchfs import node
from touchfs.dataset.samples import DatasetSamples
from touchfs.indexing import open_dataset
from touchfs.shard.options import INTERLEAVED, Options

pytestmark = pytest.mark.variant

EVIL = "<script>alert(1)</script>\"'onx=1 </title></style>--> {{7*7}} &lt; \u202egpj\u200b"


def file_of(save):
    file = io.BytesIO()
    save(file)
    return file.getvalue()


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """The URL of a server of a sample of each kind."""
    place = tmp_path_factory.mktemp("kinds")
    video = ("-f", "lavfi", "-i", "testsrc2=size=320x180:rate=10:duration=2")
    subprocess.run(["ffmpeg", "-v", "error", *video, "-c:v", "libx264", place / "v.mp4"], check=True)
    said = [{"start": each / 10, "end": each / 10 + 0.2, "speaker": "AB"[each % 2]} for each in range(450)]
    long = np.tile(np.frombuffer(tone(10.0), "<i2")[22:], 20)
    files = {
        "image.png": make_image("PNG", (640, 480)),
        "image.wav": b"RIFF, and nothing that can be heard",
        "image.json": json.dumps({"caption": "a wide " + "word " * 300, EVIL: [EVIL, {"x": None}]}).encode(),
        "arrays.plane.npy": file_of(lambda file: np.save(file, np.arange(6000.0).reshape(60, 100))),
        "arrays.line.npy": file_of(lambda file: np.save(file, np.arange(500))),
        "film.mp4": (place / "v.mp4").read_bytes(),
        "long.flac": file_of(lambda file: soundfile.write(file, long, 8000, format="FLAC")),
        "said.wav": tone(100.0, channels=2),
        "said.json": json.dumps({"segments": said}).encode(),
        f"{'longkey' * 30}.txt": b"w" * 400,
    }
    write_tar(place / "data/things.tar", files)
    rows = {"name": ["one", EVIL], "number": [1, None], "url": ["https://example.com/" + "x" * 300, ""]}
    pq.write_table(pa.table(rows), place / "data/rows.parquet")
    with in_this_process(open_dataset(os.fspath(place / "data"), in_place=True)) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.mark.parametrize(
    "path",
    [
        *("", "-/samples?sort=-size", "-/sample/things/image", "-/sample/things/arrays", "-/sample/things/film"),
        *("-/sample/things/long", "-/sample/things/long?t=100,101.5", "-/sample/things/said?segments=200"),
        *("-/sample/things/said?t=10,12", "-/sample/things/" + "longkey" * 30, "-/sample/rows/00000001"),
    ],
)
def test_a_page_of_each_kind(browser, kinds, tmp_path, path):
    check_page(browser, kinds + path, tmp_path, lambda url: url.startswith(kinds))


def test_images_are_seen_as_a_grid(browser, tmp_path):
    files = {f"{number}.png": make_image("PNG", (64 + number, 48), number) for number in range(7)}
    files["6.txt"] = f"{EVIL} {'long' * 99}".encode()
    with in_this_process(open_dataset(os.fspath(write_tar(tmp_path / "i.tar", files)), in_place=True)) as port:
        for path in ("", "-/samples?sort=random"):
            url = f"http://127.0.0.1:{port}/{path}"
            check_page(browser, url, tmp_path, lambda asked, port=port: f":{port}/" in asked)
            assert browser.run("return document.querySelectorAll('.grid img').length") == 7


def test_interleaved_documents_are_seen(browser, tmp_path):
    make_wds_tar(tmp_path / "i.tar", [mint_sample(number) for number in range(3)])
    dataset = open_dataset(os.fspath(tmp_path / "i.tar"), options=Options(kind=INTERLEAVED), in_place=True)
    with in_this_process(dataset) as port:
        root = f"http://127.0.0.1:{port}/"
        browser.look()
        browser.open(f"{root}-/samples?of=interleaved")
        first = browser.run("return document.querySelector('a.row').href")
        for url in (f"{root}-/samples?of=interleaved", first):
            check_page(browser, url, tmp_path, lambda asked: asked.startswith(root))


@pytest.fixture(scope="module")
def given(tmp_path_factory, speech):
    """A server with lists of keys, of which one is of no sample, and with two states."""
    place = tmp_path_factory.mktemp("given")
    (place / "worst.txt").write_text(f"talks/tuesday\nnumbers\ntalks/monday\n{EVIL}\n", encoding="utf-8")
    (place / "few.txt").write_text("numbers\n")
    options = ["--ids", f"worst={place}/worst.txt", "--ids", f"few={place}/few.txt"]
    for name, taken in (("early", 4), ("late", 9)):
        graph = node.LazyIndexedManifestIterator(DatasetSamples(open_dataset(os.fspath(speech))), True, 7)
        assert len([*islice(graph, taken)]) == taken
        node.save_state(graph, place / name)
        options += ["--state", f"{name}={place / name}"]
    with serving(speech, *options) as server:
        wait_until(lambda: server.ask("/-/sample?key=numbers").status == 302)
        yield server


@pytest.mark.parametrize("query", ["ids=worst", "ids=worst&sort=random&seed=3", "ids=late&but=early"])
def test_a_given_list_can_be_looked_at(browser, given, tmp_path, query):
    url = f"{given.url}-/samples?{query}"
    check_page(browser, url, tmp_path, lambda asked: asked.startswith(given.url))
    assert "\u202e" not in browser.run("return document.body.innerText")
    assert not browser.run("return document.querySelector('[onx], main script, main style')")


def test_two_states_are_compared_by_clicks(browser, given):
    """From all samples to what two states have, and from sample to sample of that."""

    def clicked(link):
        found = browser.driver.find_element("css selector", f"main a[href$='{link}']")
        there = found.get_attribute("href")
        found.click()
        wait_until(lambda: browser.driver.current_url == there)
        return browser.run("return [...document.querySelectorAll('a.row')].map(row => row.textContent)")

    browser.look()
    browser.open(f"{given.url}-/samples")
    early, late = (
        [row["key"] for row in values(given, f"/-/samples?ids={name}")["rows"]] for name in ("early", "late")
    )
    assert (clicked("?ids=late"), clicked("?ids=early")) == (late, early) and late[:4] == early
    assert clicked("?ids=early&but=late") == []
    told = browser.run("return [...document.querySelectorAll('main p')].map(each => each.textContent)")
    assert "only @early: 0 · only @late: 5 · @early and @late: 4" in told
    assert clicked("?ids=early&also=late") == early
    assert clicked("?ids=late&but=early") == late[4:]
    browser.run("document.querySelector('a.row').click()")
    for key in late[4:]:
        wait_until(lambda key=key: browser.run("return document.querySelector('h1').textContent") == key)
        browser.run("document.querySelector('a[rel=next]')?.click()")
    assert not browser.run("return document.querySelector('a[rel=next]')")
