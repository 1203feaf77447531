"""Lists of samples: orders by position, filters that take a while, bad filters, images as a grid."""

import gzip
import io
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count, islice
from threading import Semaphore
from time import monotonic
from urllib.parse import quote

import numpy as np
import pytest
from command import TOUCHFS
from PIL import Image
from served_pages import AtPort, page, tone, values
from tars import write_tar
from tree_servers import application_of, in_this_process, serving
from waiting import wait_until

from touchfs import node
from touchfs.dataset.samples import DatasetSamples
from touchfs.explore.linked import ListQuery
from touchfs.indexing import list_dataset, open_dataset
from touchfs.pages import listing
from touchfs.pages.counted import CountedDataset
from touchfs.pages.listing import Lists
from touchfs.select.facts import SampleFacts
from touchfs.select.ids.names import give
from touchfs.serve.explorer import SEARCHES, WAITING


def picture(width, height, form="PNG"):
    file = io.BytesIO()
    Image.new("RGB", (width, height), (20, 120, 90)).save(file, form)
    return file.getvalue()


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """Two shards of 120 samples: texts, and JSON with a number."""
    place = tmp_path_factory.mktemp("numbers")
    for shard in range(2):
        files = {}
        for number in range(120):
            files[f"{shard}-{number:03}.txt"] = b"x" * (1000 if number == 7 else (37 * number) % 97)
            files[f"{shard}-{number:03}.json"] = json.dumps({"at": number, "odd": bool(number % 2)}).encode()
        write_tar(place / f"{shard}.tar", files)
    return open_dataset(os.fspath(place), in_place=True)


@pytest.fixture(scope="module")
def server(numbers):
    with in_this_process(numbers) as port:
        yield AtPort(port)


def walked(server, path):
    """The keys of all pages of a list, from link to link."""
    keys, pages = [], 0
    while path:
        found = values(server, path)
        keys += [row["key"] for row in found["rows"]]
        path, pages = found["following"] and "/" + found["following"], pages + 1
    return keys, pages


def test_every_order_has_each_sample_once(server):
    stored, pages = walked(server, "/-/samples")
    assert (stored, pages) == (sorted(stored), 5) and len(set(stored)) == 240
    mixed, _ = walked(server, "/-/samples?sort=random&seed=3")
    assert mixed != stored and sorted(mixed) == stored
    assert mixed == walked(server, "/-/samples?sort=random&seed=3")[0] != walked(server, "/-/samples?sort=random")[0]
    largest, _ = walked(server, "/-/samples?sort=-size")
    assert largest[:2] == ["0-007", "1-007"] and sorted(largest) == stored
    assert walked(server, "/-/samples?sort=size")[0][-2:] == ["0-007", "1-007"]


def test_pages_are_positions(server):
    parsed = page(server, "/-/samples?from=200")
    assert "201 – 240 of 240" in parsed.text and len(parsed.all("a", **{"class": "row"})) == 40
    assert values(server, "/-/samples?from=99999")["rows"] == []
    assert [row["position"] for row in values(server, "/-/samples?from=77")["rows"]] == [*range(77, 127)]
    assert page(server, "/-/samples?from=70").all("a", rel="prev")[0]["href"] == "../-/samples?from=20"


def test_only_the_first_of_an_order_are_listed(server, numbers, monkeypatch):
    monkeypatch.setattr(listing, "_SORTED", 30)
    found = Lists(numbers).page(ListQuery(sort="-size"))
    assert (found.total, len(found.rows), found.rows[0].key) == (30, 30, "0-007") and "30" in found.remark


def offered(server, path="/-/samples"):
    """The fields and the orders that a list names."""
    parsed = page(server, path)
    (line,) = [each for each in parsed.text.splitlines() if each.startswith("Fields: ")]
    return line.removeprefix("Fields: ").split(", "), [each["value"] for each in parsed.all("option")]


def test_a_filter_names_the_fields_of_the_data(server, served, tmp_path):
    """All of these can be asked for. A list of images is not sorted by what they lack."""
    plain = ["stored", "random", "-size", "size"]
    fields = ["key", "shard", "size.json", "size.txt", "text", "characters", "at", "odd"]
    assert (sorted(offered(server)[0]), offered(server)[1]) == (sorted(fields), plain)
    assert offered(server, "/-/samples?sort=duration")[1] == [*plain[:2], "duration", *plain[2:]]
    hostile = {"odd name": 1, "in": {"a": 1, "b": []}, "long" * 20: 1, "\ud800": 1, "text": "x"}
    files = {"a.png": picture(9, 5), "a.json": json.dumps(hostile).encode(), "a.cls": b"1", "b.json": b"{"}
    with in_this_process(open_dataset(os.fspath(write_tar(tmp_path / "i.tar", files)), in_place=True)) as port:
        found, sorts = offered(AtPort(port))
        wanted = ["key", "shard", "cls", "text", "characters", '"odd name"', '"in".a', '"in".b', '"\\ud800"']
        assert (sorted(found), sorts) == (sorted([*wanted, "size.png", "size.json", "size.cls"]), plain)
        for each in found:
            assert len(values(AtPort(port), f"/-/samples?where={quote(each)}+exists")["rows"]) >= 1, each
    fields, sorts = offered(served)
    assert {"duration", "rate", "segments"} < {*fields} and {"-duration", "-segments"} < {*sorts}
    assert offered(served, "/-/samples?of=segments")[1] == ["stored", "random", "-duration", "duration"]


def test_long_texts_are_cut_and_say_so(server):
    row = next(row for row in values(server, "/-/samples")["rows"] if row["key"] == "0-007")
    assert row["text"] == "x" * 280 + " …"


def test_a_filter(server):
    found, _ = walked(server, "/-/samples?where=" + quote("at >= 110 and odd == true"))
    assert found == [f"{shard}-{number:03}" for shard in range(2) for number in range(111, 120, 2)]
    parsed = page(server, "/-/samples?where=" + quote("at < 3"))
    assert "6 found in 1 – 240 of 240" in parsed.text and parsed.all("input", id="where")[0]["value"] == "at < 3"
    assert "none of these has the field color" in page(server, "/-/samples?where=" + quote("color == 1")).text
    assert walked(server, "/-/samples?sort=-size&where=" + quote("at < 3"))[0][0] == "0-002"


def test_a_filter_names_lists_that_were_given_and_no_files(tmp_path):
    write_tar(tmp_path / "d.tar", {f"{each}.txt": b"" for each in "abcd"})
    (tmp_path / "ids.txt").write_text("b\nd\n")
    with serving(tmp_path / "d.tar", "--ids", f"good={tmp_path}/ids.txt") as server:
        wait_until(lambda: len(values(server, "/-/samples")["rows"]) == 4)
        found = values(server, "/-/samples?where=" + quote("key in @good"))
        assert [row["key"] for row in found["rows"]] == ["b", "d"]
        refused = page(server, "/-/samples?where=" + quote(f"key in @{tmp_path}/ids.txt"), status=400)
        assert "is no list that --ids NAME=FILE has given, and there are @good" in refused.text


def test_a_filter_that_takes_long_has_what_was_found_so_far(numbers):
    """A clock that goes on by a tenth of a second each time it is asked."""
    ticks, found, first, pages = count(), [], 0, 0
    while pages == 0 or first:
        shown = Lists(numbers).page(ListQuery(where="at >= 100"), first, clock=lambda: next(ticks) / 10)
        found += [row.key for row in shown.rows]
        assert shown.searched > first
        first, pages = shown.searched if shown.following else 0, pages + 1
    assert pages > 20 and len(found) == len({*found}) == 40


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A server of eight keys, which are odd, and of lists of them. Reversed order is not stored order."""
    place = tmp_path_factory.mktemp("given")
    files = {f"{name}.txt": b"x" * size for size, name in enumerate([*"abcdef", "<b>&\u202e", "g h"])}
    write_tar(place / "d.tar", files)
    lists = {
        "back": "g h\n<b>&\u202e\nf\nd\nnone\nb\nb\n<i>\n",
        "few": "a\nb\nf\n",
        "many": "".join(f"{number}\n" for number in range(10_001)),
        "empty": "",
    }
    for name, text in lists.items():
        (place / f"{name}.txt").write_text(text)
    np.save(place / "numbers.npy", np.arange(3))
    named = [f"{name}={place}/{name}.txt" for name in lists] + [f"numbers={place}/numbers.npy"]
    options = [option for each in named for option in ("--ids", each)]
    with serving(place / "d.tar", *options) as server:
        wait_until(lambda: server.ask("/-/sample?key=a").status == 302)
        yield server


def test_a_list_that_was_given_has_its_order(given):
    """The other orders are of the same samples. What has no sample is told."""
    back = ["g h", "<b>&\u202e", "f", "d", "b"]
    found = values(given, "/-/samples?ids=back")
    assert [row["key"] for row in found["rows"]] == back and found["total"] == 5
    assert found["remark"] == "2 of 7 keys of @back are of no sample: none, <i>"
    parsed = page(given, "/-/samples?ids=back")
    assert "of no sample: none, <i>" in parsed.text and not parsed.all("i")
    orders = [option["value"] for option in parsed.all("option")]
    assert orders == ["listed", "stored", "random", "-size", "size"]
    for sort in orders:
        keys = walked(given, f"/-/samples?ids=back&sort={sort}")[0]
        wanted = {"stored": back[::-1], "-size": back, "size": back[::-1], "listed": back}
        assert sorted(keys) == sorted(back) and keys == wanted.get(sort, keys)
    assert walked(given, "/-/samples?ids=back&where=" + quote("size.txt < 6"))[0] == ["f", "d", "b"]
    assert walked(given, "/-/samples?ids=back&sort=random&seed=1") != walked(given, "/-/samples?ids=back&sort=random")
    assert values(given, "/-/samples?ids=empty")["rows"] == []


def test_lists_that_were_given_are_compared(given):
    assert walked(given, "/-/samples?ids=back&but=few")[0] == ["g h", "<b>&\u202e", "d"]
    assert walked(given, "/-/samples?ids=few&also=back")[0] == ["b", "f"]
    assert walked(given, "/-/samples?ids=few&but=back")[0] == ["a"]


def test_a_sample_of_a_given_list_keeps_it(given):
    rows = values(given, "/-/samples?ids=back&but=few")["rows"]
    shown = [values(given, "/" + row["url"]) for row in rows]
    assert [each["following"] for each in shown] == [*(row["url"] for row in rows[1:]), ""]
    assert [each["previous"] for each in shown] == ["", *(row["url"] for row in rows[:-1])]
    assert [row["key"] for row in values(given, "/" + shown[1]["list"])["rows"]] == ["<b>&\u202e", "d"]
    form = page(given, "/-/samples?ids=back&but=few").all("input", type="hidden")
    assert {each["name"]: each["value"] for each in form} == {"ids": "back", "but": "few"}


def test_pages_link_to_what_was_given(given):
    urls = page(given, "/-/samples").urls
    assert {f"/-/samples?ids={name}" for name in ("back", "few", "many", "empty", "numbers")} < {*urls}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """A server of twelve samples and of states, and the keys that each had seen."""
    place = tmp_path_factory.mktemp("states")
    data = os.fspath(write_tar(place / "d.tar", {f"{number:02}.txt": b"" for number in range(12)}))
    write_tar(place / "other.tar", {"a.txt": b""})
    keys, options = {}, []
    for name, seed, taken, of in (
        ("early", 7, 4, data),
        ("late", 7, 9, data),
        ("mixed", 8, 6, data),
        ("whole", 7, 12, data),
        ("other", 7, 1, os.fspath(place / "other.tar")),
    ):
        graph = node.LazyIndexedManifestIterator(DatasetSamples(open_dataset(of, in_place=True)), True, seed)
        keys[name] = [sample.key for sample in islice(graph, taken)]
        node.save_state(graph, place / name)
        options += ["--state", f"{name}={place / name}"]
    with serving(data, *options) as server:
        wait_until(lambda: server.ask("/-/sample?key=00").status == 302)
        yield server, keys


def test_what_a_state_has_seen_is_a_list(seen):
    server, keys = seen
    for name in ("early", "late", "mixed", "whole"):
        assert walked(server, f"/-/samples?ids={name}")[0] == keys[name]
        assert walked(server, f"/-/samples?ids={name}&sort=stored")[0] == sorted(keys[name])
    assert "@late has seen 9 of 12 samples of epoch 0" in page(server, "/-/samples?ids=late").text
    refused = server.ask("/-/samples?ids=other")
    assert (refused.status, b"the state @other cannot be shown: state was saved with length = 1" in refused.body) == (
        400,
        True,
    )


@pytest.mark.parametrize(("one", "two"), [("late", "early"), ("early", "late"), ("late", "mixed")])
def test_two_states_are_compared(seen, one, two):
    """Each count leads to the samples that it counts."""
    server, keys = seen
    wanted = {
        f"only @{one}": [key for key in keys[one] if key not in keys[two]],
        f"only @{two}": [key for key in keys[two] if key not in keys[one]],
        f"@{one} and @{two}": [key for key in keys[one] if key in keys[two]],
    }
    compared = values(server, f"/-/samples?ids={one}&but={two}")["compared"]
    assert [words for words, _, _ in compared] == [*wanted]
    for words, number, url in compared:
        assert walked(server, "/" + url)[0] == wanted[words] and number == len(wanted[words])
        assert f"{words}: {number}" in page(server, "/" + url).text
    assert f"/-/samples?ids={one}&but={two}" in page(server, f"/-/samples?ids={one}").urls


@pytest.mark.parametrize(
    ("given_as", "line"),
    [
        ("state", "write NAME=FILE"),
        ("a b=state", "write NAME=FILE"),
        ("x=none", "none: no such file"),
        ("x=data.tar", "data.tar: not JSON"),
    ],
)
def test_a_state_that_is_none_is_one_line(tmp_path, given_as, line):
    write_tar(tmp_path / "data.tar", {"a.txt": b""})
    command = [TOUCHFS, "serve", "data.tar", "--http", "127.0.0.1:0", "--state", given_as]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert (done.returncode != 0, done.stderr.count(b"\n")) == (True, 1) and line in done.stderr.decode()


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("ids=none", "there are back, few, many, empty, numbers"),
        ("ids=" + quote("<script>\n"), "no list of this name was given by --ids NAME=FILE"),
        ("ids=back&but=none", "no list of this name was given"),
        ("ids=back&but=few&also=few", "leave out but or also"),
        ("ids=many", "@many has 10,001 ids, and a page lists at most 10,000: filter with key in @many"),
        ("ids=numbers", "@numbers has integers, and keys are texts"),
        ("ids=back&of=merged/max%3D1", "lists that were given are of samples"),
        ("ids=back&sort=odd", "sort is listed, stored"),
    ],
)
def test_what_cannot_be_listed_is_one_line(given, query, line):
    got = given.ask(f"/-/samples?{query}", Accept="text/html")
    assert (got.status, got.body.count(b"\n")) == (400, 1) and line in got.body.decode()


def test_keys_are_looked_up_while_a_page_waits_for_nothing(tmp_path, monkeypatch):
    write_tar(tmp_path / "d.tar", {f"{name}.txt": b"" for name in "abcd"})
    (tmp_path / "ids.txt").write_text("c\nb\nd\n")
    monkeypatch.setenv("TOUCHFS_IDS", "")
    give([f"some={tmp_path}/ids.txt"])
    dataset = open_dataset(os.fspath(tmp_path / "d.tar"), in_place=True)
    find, may = dataset.find, Semaphore(1)
    monkeypatch.setattr(dataset, "find", lambda key: may.acquire() and find(key))
    with in_this_process(dataset) as port:
        server = AtPort(port)
        wait_until(lambda: [row["key"] for row in values(server, "/-/samples?ids=some")["rows"]] == ["c"])
        begun = page(server, "/-/samples?ids=some")
        assert begun.all("p", **{"data-counting": None}) and "1 of 3 keys are looked up" in begun.text
        may.release(2)
        wait_until(lambda: not values(server, "/-/samples?ids=some")["is_counting"])
        assert walked(server, "/-/samples?ids=some")[0] == ["c", "b", "d"]


def test_a_search_goes_on_from_link_to_link(server, monkeypatch):
    """Each request looks at one sample. A page says how far it has come, and has a script that goes on."""
    monkeypatch.setattr(listing, "_SEARCH_SECONDS", 0.0)
    found, pages = walked(server, "/-/samples?where=at+%3C+3&from=100")
    assert (found, pages) == (["1-000", "1-001", "1-002"], 140)
    parsed = page(server, "/-/samples?where=at+%3C+3&from=120")
    assert "1 found in 121 – 121 of 240" in parsed.text
    assert parsed.all("progress")[0] == {"id": "progress", "max": "240", "value": "121", "aria-label": "Searched"}
    scripts = [each["src"].rpartition("/")[2] for each in parsed.all("script")]
    assert scripts == ["player.js", "search.js"] and parsed.all("a", id="following")
    parsed = page(server, "/-/samples?where=at+%3C+3&from=239")
    assert len(parsed.all("script")) == 1 and not parsed.all("progress")


def test_a_search_for_keys_looks_at_many_together(tmp_path, monkeypatch):
    """It reads nothing but keys. All are looked at once, whatever the time allows."""
    write_tar(tmp_path / "d.tar", {f"{number:04}.txt": b"" for number in range(500)})
    (tmp_path / "ids.txt").write_text("".join(f"{number:04}\n" for number in range(0, 500, 3)))
    monkeypatch.setenv("TOUCHFS_IDS", "")
    give([f"third={tmp_path}/ids.txt"])
    monkeypatch.setattr(SampleFacts, "records", None)
    lists = Lists(open_dataset(os.fspath(tmp_path / "d.tar"), in_place=True))
    ticks = count()
    for clock in (monotonic, lambda: next(ticks) / 5):
        first, found, pages = 0, [], 0
        while pages == 0 or first:
            shown = lists.page(ListQuery(where="key in @third"), first, clock=clock)
            found += [row.key for row in shown.rows]
            first, pages = shown.searched if shown.following else 0, pages + 1
        assert found == [f"{number:04}" for number in range(0, 500, 3)]


def test_a_search_begins_again_if_places_have_moved(tmp_path, monkeypatch):
    """An earlier shard is indexed between two pages: what was found is not all, and what comes was seen."""
    monkeypatch.setattr(listing, "_SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(CountedDataset, "_begin", lambda self: None)
    for name in "ab":
        write_tar(tmp_path / f"{name}.tar", {f"{name}{number}.txt": b"" for number in range(3)})
    dataset = list_dataset(os.fspath(tmp_path), in_place=True)
    with in_this_process(dataset) as port:
        server = AtPort(port)
        server.ask("/shards/b/")
        begun = values(server, "/-/samples?where=size.txt+%3D%3D+0")
        assert (begun["rows"][0]["key"], begun["remark"]) == ("b0", "1 of 2 shards are indexed")
        server.ask("/shards/a/")
        again = values(server, "/" + begun["following"])
        assert (again["first"], again["rows"][0]["key"]) == (0, "a0") and "begins again" in again["remark"]
        assert walked(server, "/" + again["following"])[0] == ["a1", "a2", "b0", "b1", "b2"]


@pytest.mark.parametrize(
    ("kind", "path"), [("searches", "/-/samples?where=at+%3C+3"), ("samples", "/-/sample/0/0-001")]
)
def test_few_searches_and_samples_are_made_at_a_time(numbers, kind, path):
    """Others wait for their turn, and no more than that. Files and plain lists do not wait."""
    application = application_of(numbers)
    turns = getattr(application.explorer, kind)
    turns.seconds = 20.0
    clients = SEARCHES + WAITING
    with in_this_process(numbers, 64, application) as port, ThreadPoolExecutor(clients) as pool, ExitStack() as taken:
        server = AtPort(port)
        for _ in range(SEARCHES):
            taken.enter_context(turns.turn())
        waiting = [pool.submit(server.ask, path) for _ in range(WAITING)]
        wait_until(lambda: turns.waiting == WAITING)
        refused = server.ask(path)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
        assert server.ask("/-/samples").status == server.ask("/shards/0/0-001.txt").status == 200
        assert not any(each.done() for each in waiting)
        taken.close()
        assert {each.result(60).status for each in waiting} == {200}


@pytest.mark.parametrize(
    "query", ["where=at+%3C+3", "sort=random&seed=3", "sort=-size&where=odd+==+true", "of=samples/1&where=at+%3C+3"]
)
def test_a_sample_of_a_list_keeps_it(server, query):
    """Before and after are those of the list; plain lists name no list."""
    rows = values(server, f"/-/samples?{query}")["rows"]
    shown = [values(server, "/" + row["url"]) for row in rows]
    assert [each["previous"] for each in shown[1:]] == [row["url"] for row in rows[:-1]]
    assert [each["following"] for each in shown[:-1]] == [row["url"] for row in rows[1:]]
    assert shown[0]["previous"] == ""
    links = page(server, "/" + rows[1]["url"]).all("a", **{"class": "button"})
    assert [each.get("rel") for each in links] == ["prev", None, "next"]
    assert values(server, "/" + shown[1]["list"])["rows"][0]["key"] == rows[1]["key"]
    assert "?" not in values(server, "/-/samples")["rows"][0]["url"]
    assert server.ask("/" + rows[0]["url"].replace("at=", "at=x")).status == 400


def test_a_search_beside_a_sample_ends(numbers):
    """It leads to the list that goes on with it: as far before the place as it has come, or after."""
    ticks = count()
    before, after = Lists(numbers).beside(ListQuery(where="at == 1"), 100, clock=lambda: next(ticks) / 10)
    assert (before, after) == ("-/samples?where=at+%3D%3D+1&from=96", "-/samples?where=at+%3D%3D+1&from=102")
    assert [row.key for row in Lists(numbers).page(ListQuery(where="at == 1"), 96).rows] == ["1-001"]


@pytest.mark.parametrize(
    ("where", "column", "underlined"), [("at >", 4, " "), ("at = 3", 3, "="), ("grüße § 3", 6, "§"), ("", None, None)]
)
def test_a_bad_filter_is_shown_where_it_is(server, where, column, underlined):
    found = values(server, f"/-/samples?where={quote(where)}", 200 if column is None else 400)
    assert found["column"] == column
    if column is not None:
        parsed = page(server, f"/-/samples?where={quote(where)}", 400)
        assert (
            f"where, column {column + 1}: expected" in parsed.text
            and parsed.all("input", id="where")[0]["value"] == where
        )
        assert parsed.texts[parsed.texts.index(where[:column]) + 1] == underlined
        assert not parsed.all("p", id="told") and " · " not in parsed.texts  # nothing of it is counted


@pytest.mark.parametrize("said", ['"<b>&\u202e\0', "it's \\ \U000e0001"])
def test_a_filter_is_sent_again_as_it_was(tmp_path, said):
    """What has no shape is an escape in the form. A text that is no filter has a link to search the texts for it."""
    files = {"a.txt": f"who says {said}?".encode(), "b.txt": b"nobody"}
    with in_this_process(open_dataset(os.fspath(write_tar(tmp_path / "t.tar", files)), in_place=True)) as port:
        server = AtPort(port)
        asked = f"text contains {json.dumps(said, ensure_ascii=False)}".replace("\0", "\\u0000")
        (typed,) = page(server, f"/-/samples?where={quote(asked)}").all("input", id="where")
        assert typed["value"].isprintable()
        for where in (asked, typed["value"]):
            assert walked(server, f"/-/samples?where={quote(where)}")[0] == ["a"]
        wrong = page(server, f"/-/samples?where={quote(f'says {said}')}", 400)
        (link,) = [url for url in wrong.urls if "where=text+contains" in url]
        assert walked(server, link)[0] == ["a"]


def test_what_is_read_for_a_row_has_bounds(tmp_path):
    """A compressed JSON that is large is not decompressed for a list, and a long key is cut where people see it."""
    small, large = ({"text": "said", "more": "x" * size} for size in (10, 1 << 20))
    files = {
        f"{name}.json.gz": gzip.compress(json.dumps(each).encode()) for name, each in {"a": small, "b": large}.items()
    }
    files |= {"c.txt.gz": gzip.compress(b"y" * 5000), "d.txt.gz": gzip.compress(b"z" * (2 << 20))}
    write_tar(tmp_path / "data/t.tar", files)
    key = "k" * 50_000
    (tmp_path / "data/l.jsonl").write_text(json.dumps({"id": key, "text": "long"}) + "\n")
    with in_this_process(open_dataset(os.fspath(tmp_path / "data"), in_place=True)) as port:
        server = AtPort(port)
        rows = {row["key"]: row["text"] for row in values(server, "/-/samples")["rows"]}
        assert (rows["a"], rows["b"], rows["c"], rows["d"]) == ("said", "json.gz", "y" * 280 + " …", "")
        assert rows[key] == "long"
        assert len(page(server, "/-/samples").text) < 5000


def test_images_are_a_grid_of_thumbnails(tmp_path):
    noise = os.urandom(2_000_000)
    files = {"a.png": picture(9, 5), "b.tif": picture(9, 5, "TIFF"), "c.png": picture(9, 5) + noise, "d.txt": b"no"}
    place = write_tar(tmp_path / "i.tar", files)
    with in_this_process(open_dataset(os.fspath(place), in_place=True)) as port:
        server = AtPort(port)
        pictures = [row["picture"] for row in values(server, "/-/samples")["rows"]]
        wanted = ["shards/i/a.png", "-/thumb/shards/i/b.tif.jpg", "-/thumb/shards/i/c.png.jpg", ""]
        assert pictures == wanted
        assert len(page(server, "/-/samples").all("ul", **{"class": "grid"})) == 1
        for url in pictures[1:3]:
            got = server.ask("/" + url)
            assert (got.headers["Content-Type"], Image.open(io.BytesIO(got.body)).size) == ("image/jpeg", (9, 5))


def test_segments_are_a_list_too(tmp_path):
    spoken = json.dumps({"segments": [{"start": 0, "end": 1, "text": "one"}, {"start": 1, "end": 2, "text": "two"}]})
    place = write_tar(tmp_path / "s.tar", {"a.wav": tone(2.0), "a.json": spoken.encode(), "b.wav": tone(1.0)})
    with in_this_process(open_dataset(os.fspath(place), in_place=True)) as port:
        server = AtPort(port)
        whole = values(server, "/-/samples?sort=-segments")["rows"]
        assert [(row["key"], row["segments"], row["duration"]) for row in whole] == [
            ("a", 2, "2.000 s"),
            ("b", 0, "1.000 s"),
        ]
        for of in ("segments", "merged/max=1"):
            rows = values(server, f"/-/samples?of={of}&where=text+contains+%22o%22")["rows"]
            assert [row["text"] for row in rows] == ["one", "two"]
            sample = values(server, "/" + rows[1]["url"])
            assert "two" in json.dumps(sample)
