"""What a browser sees at the address of `touchfs serve`, and that programs see what they always saw."""

import os
import re
import subprocess

import pytest
from served_pages import BROWSER, AtPort, Parsed, page, values
from tars import write_tar
from tree_servers import HOSTILE, in_this_process, serving
from waiting import wait_until

from touchfs.indexing import list_dataset
from touchfs.pages import overview
from touchfs.serve import explorer

PAGES = ["/", "/-/samples", "/-/samples?of=segments", "/-/sample/000000000/talks/monday", "/-/errors"]


@pytest.mark.parametrize(
    "accept",
    ["", "*/*", "text/plain", "application/xhtml+xml", "text/htmlx, */*", "text/html;q=0", "*/*, Text/HTML ; Q=0.000"],
)
def test_programs_get_the_listing(served, accept):
    got = served.ask("/", Accept=accept) if accept else served.ask("/")
    listing = served.ask("/?list", Accept=BROWSER)
    assert got.body == listing.body and got.headers.items()[:3] == listing.headers.items()[:3]
    assert got.body.startswith(b"<!DOCTYPE html>\n<html><head>") and b'<a href="/shards/">shards/</a>\n' in got.body
    assert got.headers["Vary"] == "Accept"
    json_first = served.ask("/", Accept="application/json, text/html").body
    assert json_first == served.ask("/", Accept="application/json").body and json_first.startswith(b"[\n{")


@pytest.mark.parametrize("accept", ["text/html;q=0.01", "text/html; charset=utf-8; q=1, */*;q=0", "*/*,text/html"])
def test_a_little_wish_for_html_is_one(served, accept):
    assert b"</main>" in served.ask("/", Accept=accept).body


@pytest.mark.parametrize("path", PAGES)
def test_the_policy_of_a_page(served, path):
    got, again = (served.ask(path, Accept=BROWSER) for _ in range(2))
    parsed = Parsed(got.body)
    (script,), styles = parsed.all("script"), parsed.all("link", rel="stylesheet")
    nonce = script["nonce"]
    assert len(nonce) >= 22 and {each["nonce"] for each in styles} == {nonce} and nonce.encode() not in again.body
    assert got.headers["Content-Security-Policy"] == (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self'; media-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    wanted = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Vary": "Accept"}
    assert {**wanted, "Cross-Origin-Opener-Policy": "same-origin"}.items() <= dict(got.headers).items()
    # No style of an element, no handler, no script in the page: the policy would refuse them.
    names = {name for _, attributes in parsed.elements for name in attributes}
    assert not {name for name in names if name == "style" or name.startswith("on")} and not parsed.all("style")


def test_every_link_leads_to_something_of_this_server(served):
    left, seen, drawn = [*PAGES], {}, 0
    while left:
        path = left.pop()
        drawn += (is_drawn := path.startswith(("/-/spectrogram", "/-/wave")))
        if path in seen or (is_drawn and drawn > 20):  # sixty of each differ by their sample alone
            continue
        got = served.ask(path, Accept=BROWSER)
        seen[path] = got.status
        is_ours = path.startswith(("/-/", "/?")) and not path.partition("?")[0].endswith((".png", ".jpg"))
        assert b"://" not in got.body.replace(b"http://www.w3.org/2000/svg", b"") or not is_ours
        if got.headers["Content-Type"].startswith("text/html") and (path == "/" or path.startswith("/-/")):
            parsed = Parsed(got.body, path)
            assert all(url.startswith("/") for url in parsed.urls)
            # Parts have parts, and so on without end.
            left += [url for url in parsed.urls if "t=" not in path]
    assert set(seen.values()) == {200} and len(seen) > 80


def counted(server):
    """The overview, once all statistics are there."""
    wait_until(lambda: b"data-counting" not in server.ask("/", Accept=BROWSER).body)
    return page(server, "/")


def test_the_overview(served):
    parsed = counted(served)
    assert "10 samples" in parsed.text and "3 shards" in parsed.text
    assert page(served, "/-/").text == parsed.text
    cards = {part["title"]: part for part in values(served, "/-/")["page"]["parts"] if "title" in part}
    assert (
        sum(cards["Duration"]["counts"]) == 10
        and cards["Duration"]["filters"][0] == "duration >= 0 and duration < 0.0625"
    )
    assert len(parsed.all("a", **{"class": "row"})) == 10


def test_bars_lead_to_what_they_count(served):
    parsed = counted(served)
    bars = [each for each in parsed.all("a") if "aria-label" in each]
    assert {each["aria-label"].split(" ")[0] for each in bars} >= {"duration", "segments", "characters"}
    for bar in bars:
        found = values(served, "/" + bar["href"].removeprefix("./"))
        filter_, _, count = bar["aria-label"].rpartition(": ")
        assert (found["where"], len(found["rows"])) == (filter_, int(count))
    links = [link for link in parsed.all("a") if "where=" in link["href"]]
    assert any("where=coding" in link["href"] for link in links)
    for link in links:
        assert values(served, "/" + link["href"].removeprefix("./"))["rows"], link


def test_what_is_not_indexed_is_not_counted(tmp_path, monkeypatch):
    """A look indexes one shard, and no page more of them."""
    monkeypatch.setattr(overview, "INDEXED_BYTES", 1)
    for name in "abc":
        write_tar(tmp_path / f"data/{name}.tar", {f"{name}{number}.txt": b"words" for number in range(4)})
    dataset = list_dataset(os.fspath(tmp_path / "data"))
    with in_this_process(dataset) as port:
        server = AtPort(port)
        parsed = counted(server)
        assert "1 of 3 shards are indexed, and counted here" in parsed.text and "4 samples" in parsed.text
        assert os.fspath(tmp_path) not in parsed.text
        assert values(server, "/-/samples?sort=random")["total"] == 4 and dataset.indexed_count == 1
        assert page(server, "/-/sample/c/c1").text.count("words") == 1 and dataset.indexed_count == 2
        assert values(server, "/-/samples")["total"] == 8
        wait_until(lambda: "8 samples" in page(server, "/").text)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PROPFIND", "OPTIONS"])
def test_pages_are_only_read(served, method):
    got = served.ask("/-/samples", method)
    assert (got.status, got.headers["Allow"]) == (405, "GET, HEAD")


def test_head_and_unknown_pages(served):
    head, got = (served.ask("/-/errors", method) for method in ("HEAD", "GET"))
    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", str(len(got.body)))
    missing = ["/-/sample/all/x?of=slices", "/-/x", "/-/samples/x", "/-/sample/000000000/x", "/-/sample/x/y"]
    for path in [*missing, "/-/static/0/page.css", "/-/wave/shards/x.svg", "/-/wave/shards.png", "/-/thumb/shards.jpg"]:
        got = served.ask(path, Accept=BROWSER)
        assert (got.status, got.body.count(b"\n")) == (404, 1), path
    for query in (
        "from=-1",
        "from=x",
        "seed=%00",
        "sort=x",
        "of=x",
        "from=" + "9" * 30,
        "&".join(f"{n}=1" for n in range(99)),
    ):
        got = served.ask(f"/-/samples?{query}", Accept=BROWSER)
        assert (got.status, got.body.count(b"\n")) == (400, 1), query


def test_style_and_script_are_kept_by_browsers(served):
    names = [url for url in page(served, "/-/errors").urls if "/static/" in url]
    assert sorted(url.rpartition("/")[2] for url in names) == ["icon.svg", "page.css", "player.js", "served.css"]
    for url in names:
        got = served.ask(url)
        assert (got.status, got.headers["Cache-Control"]) == (200, "private, max-age=31536000, immutable")
        assert got.headers["Content-Type"].split(";")[0] in ("image/svg+xml", "text/css", "text/javascript")
        assert served.ask(re.sub("static/[0-9a-f]+", "static/0123", url)).status == 404


def test_host_and_token_hold_for_pages(speech, served, tmp_path):
    assert served.ask("/-/samples", Host="evil.example").status == 421
    token = tmp_path / "token"
    token.write_text("x" * 32)
    token.chmod(0o600)
    with serving(speech, "--token-file", token) as server:
        for path in ("/", "/-/samples", page(served, "/").urls[1]):
            assert server.ask(path, Accept=BROWSER).status == 401
            assert server.ask(path, Accept=BROWSER, Authorization="Bearer " + "x" * 32).status == 200


def test_a_page_that_cannot_be_made(speech, monkeypatch, caplog):
    def broken(*_):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(explorer, "errors_from", broken)
    with in_this_process(list_dataset(os.fspath(speech))) as port:
        server = AtPort(port)
        got = server.ask("/-/errors")
        assert (got.status, got.body) == (500, b"this page cannot be made: the log of the server says why\n")
        assert server.ask("/-/samples").status == 200
    assert "secret" in caplog.text


def test_names_and_texts_of_data_are_texts(hostile):
    names = [name.rpartition(".")[0] for name in HOSTILE]
    parsed = page(hostile, "/-/samples")
    shown = [name.replace("\udcff", "⟨U+DCFF⟩") for name in names]
    assert all(name in parsed.text for name in shown)
    assert not parsed.all("img", src="x") and len(parsed.all("script")) == 1
    for row in parsed.all("a", **{"class": "row"}):
        sample = page(hostile, "/-/" + row["href"].removeprefix("../-/"))
        assert any(name in sample.text for name in shown) and len(sample.all("script")) == 1
    evil = "<script>alert(1)</script>\"'\u202e"
    with_filter = page(hostile, "/-/samples?where=%3Cscript%3Ealert(1)%3C/script%3E%22%27%E2%80%AE&of=samples", 400)
    assert len(with_filter.all("script")) == 1
    assert with_filter.all("input", id="where")[0]["value"] == evil.replace("\u202e", "\\u202e")


def test_open_starts_the_browser(speech, tmp_path):
    told = tmp_path / "told"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {told}\n')
    browser.chmod(0o755)
    with serving(speech, "--open", env={**os.environ, "BROWSER": f"{browser} %s"}) as server:
        wait_until(lambda: told.exists() and told.read_text().strip() == server.url)


def test_programs_that_people_use(served, tmp_path):
    """None of them names HTML, so all of them find the files, and no page."""
    listing = served.ask("/?list").body
    assert subprocess.run(["curl", "-s", served.url], check=True, capture_output=True).stdout == listing
    wget = ["wget", "-q", "-r", "-l", "3", "-nH", "-np", "-P", tmp_path, f"{served.url}shards/000000000/"]
    subprocess.run(wget, check=True, timeout=60)
    monday = served.ask("/shards/000000000/talks/monday.wav").body
    assert (tmp_path / "shards/000000000/talks/monday.wav").read_bytes() == monday
    subprocess.run(["wget", "-q", "-r", "-l", "1", "-nH", "-P", tmp_path / "root", served.url], check=True, timeout=60)
    assert (tmp_path / "root/index.html").read_bytes() == listing and not (tmp_path / "root/-").exists()
    rclone = ["rclone", "lsf", "-R", f":http,url='{served.url}shards/':", "--config", "/dev/null"]
    found = subprocess.run(rclone, check=True, capture_output=True, text=True, timeout=60).stdout
    assert "000000000/talks/monday.wav" in found.splitlines()
