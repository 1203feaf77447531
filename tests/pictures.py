"""`make pictures`: docs/pictures, which README.md and docs/looking.md show, of the recordings of tests/data/speech.

Look at them before you commit them.
"""

import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

from browser import Browser
from command import TOUCHFS

HERE = Path(__file__).parent
PICTURES = HERE.parent / "docs" / "pictures"
WIDTH, COLOURS = 1280, 160


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        shards = Path(temporary) / "shards"
        run("pack", "touchnet", HERE / "data/speech/speech.jsonl", shards)
        run("index", shards)
        run("show", f"{shards}:shards/000000000/talks/monday.wav", "-o", PICTURES / "monday.svg")
        serve = [TOUCHFS, "serve", shards, "--http", "127.0.0.1:0"]
        with closing(Browser()) as browser, subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                url = server.stdout.readline().split()[-1]
                take(browser, url, "overview.png", 1260)
                take(browser, f"{url}-/sample/000000000/talks/monday", "sample.png", 690)
            finally:
                server.terminate()


def run(*arguments: object) -> None:
    subprocess.run([TOUCHFS, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def take(browser: Browser, url: str, name: str, height: int) -> None:
    """The upper part of a page, in few colours: it is a quarter as large, and looks the same."""
    browser.look(WIDTH)
    browser.open(url)
    page = browser.screenshot()
    page.crop((0, 0, WIDTH, min(height, page.height))).quantize(COLOURS).save(PICTURES / name, optimize=True)


if __name__ == "__main__":
    main()
