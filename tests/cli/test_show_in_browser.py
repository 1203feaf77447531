"""What `touchfs show -o` writes, in a real browser: complete, quiet, readable by day and by night, at any width."""

import io
import json

import numpy as np
import pytest
from browser import COLOURS, check_page, colours
from PIL import Image
from speech import SPEECH
from tars import write_tar

from touchfs.format import wav

pytestmark = pytest.mark.variant

EVIL = "<script>alert(1)</script>\"'onx=1 </title></style>--> {{7*7}} &lt; \u202egpj\u200b"


def saved(save, *arguments):
    file = io.BytesIO()
    save(file, *arguments)
    return file.getvalue()


def gradient(width, height):
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    image = Image.fromarray(np.stack([across, down, 255 - across], axis=2).astype(np.uint8))
    return saved(lambda file: image.save(file, "PNG"))


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    """A tar of samples of each kind, also damaged and hostile ones."""
    noise = np.random.default_rng(0)
    sound = (noise.standard_normal((16000, 2)) * np.linspace(200, 9000, 16000)[:, None]).astype("<i2").tobytes()
    segments = [
        {"start": 0, "end": 0.7, "text": "Good morning.", "speaker": "ann"},
        {"start": 0.5, "end": 1.0, "text": "你好。" * 30, "speaker": "bo" * 20},
        {"start": 0.9, "end": 0.91, "text": EVIL, "speaker": EVIL},
    ]
    files = {
        "a.wav": wav.build_header(len(sound), 16000, 2) + sound,
        "a.json": json.dumps({"segments": segments, EVIL: EVIL, "long": "x" * 500}).encode(),
        "b.png": gradient(640, 400),
        "b.txt": "שלום עולם".encode(),
        "b.small.png": gradient(24, 24),
        "c.npy": saved(np.save, np.outer(np.arange(60), np.sin(np.arange(200)))),
        "c.line.npy": saved(np.save, np.sin(np.arange(5000) / 200)),
        "c.tokens.npy": saved(np.save, np.arange(5000)),
        "d.wav": b"RIFF no wav",
        "d.txt": EVIL.encode(),
        f"{'k' * 150}.txt": b"a text under a long key " * 40,
    }
    return write_tar(tmp_path_factory.mktemp("things") / "things.tar", files)


@pytest.fixture(scope="module")
def written(tmp_path_factory, things, touchfs):
    """Writes a page, and returns its path."""
    place = tmp_path_factory.mktemp("pages")

    def write(dataset, name, *options):
        done = touchfs("show", dataset, "-o", place / name, *options)
        assert (done.returncode, done.stderr) == (0, b"")
        return place / name

    return write


@pytest.fixture(scope="module")
def speech(tmp_path_factory, touchfs):
    place = tmp_path_factory.mktemp("speech") / "shards"
    assert touchfs("pack", "touchnet", SPEECH / "speech.jsonl", place).returncode == 0
    return place


def test_a_recording(browser, written, speech, tmp_path):
    page = written(f"{speech}:shards/000000000/talks/monday.wav", "monday.html")
    check_page(browser, page.as_uri(), tmp_path)
    browser.look()
    browser.open(page.as_uri())
    ((spectrogram, _),) = browser.pictures()
    assert colours(spectrogram) > COLOURS
    browser.look(is_night=True)
    ((night, _),) = browser.pictures()
    assert np.asarray(night).mean() < np.asarray(spectrogram).mean()
    assert "Content-Security-Policy" in browser.driver.page_source
    browser.run("document.querySelector('audio').play()")
    length = browser.driver.execute_async_script(
        "const done = arguments[0], sound = document.querySelector('audio');"
        "sound.onended = () => done(sound.duration); if (sound.ended) done(sound.duration);"
    )
    assert length == pytest.approx(1.296, abs=0.01)


@pytest.mark.parametrize("name", ["a.wav", "b.png", "c.npy", "d.wav"])
def test_a_sample_of_each_kind(browser, written, things, tmp_path, name):
    page = written(f"{things}:shards/things/{name}", f"{name}.html")
    check_page(browser, page.as_uri(), tmp_path)
    assert browser.driver.find_elements("css selector", ".alarm") or all(
        colours(picture) > COLOURS for picture, _ in browser.pictures()
    )


def test_a_picture_alone(browser, written, speech, things, tmp_path):
    for dataset, name in (
        (f"{speech}:shards/000000000/numbers.wav", "numbers"),
        (f"{things}:shards/things/a.wav", "a"),
    ):
        page = written(dataset, f"{name}.svg")
        check_page(browser, page.as_uri(), tmp_path)
        assert colours(browser.screenshot()) > COLOURS


def test_a_report(browser, written, things, tmp_path):
    page = written(things, "report.html")
    check_page(browser, page.as_uri(), tmp_path)
    assert EVIL.partition("\u202e")[0] in browser.run("return document.body.innerText")
    assert browser.run("return document.scripts.length") == 0


def test_a_page_that_is_changed_runs_no_script(browser, written, speech, tmp_path):
    page = written(speech, "changed.html", "--samples", "1")
    evil = "<img src=x onerror='document.title = 1'><script>document.title = 2</script><script src=http://localhost:1/>"
    page.write_text(page.read_text(encoding="utf-8").replace("<footer>", f"{evil}</script><footer>"), encoding="utf-8")
    browser.look()
    browser.open(page.as_uri())
    assert browser.driver.title == "shards" and len(browser.console()) >= 3
    assert [url for url in browser.requests() if not url.startswith("file:")] == []
