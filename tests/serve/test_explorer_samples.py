"""The page of a sample: recording, pictures and segments, images, arrays, rows, documents, and what is damaged."""

import io
import json
import os
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from interleaved_tars import make_wds_tar, mint_sample
from PIL import Image
from served_pages import AtPort, Parsed, page, tone, values
from tars import write_tar
from tree_servers import in_this_process
from waiting import wait_until

from touchfs.indexing import open_dataset
from touchfs.picture.palette import PAPER
from touchfs.picture.spectrogram import ROWS, row_of
from touchfs.shard.options import INTERLEAVED, Options

MONDAY = "/-/sample/000000000/talks/monday"
EVIL = "<script>alert(1)</script>\u202e&amp;{{7*7}}"


def parts(server, path):
    return {part["kind"]: part for part in values(server, path)["page"]["parts"]}


def served_files(tmp_path, files, **options):
    """A server of a tar of these files, called `t`."""
    place = write_tar(tmp_path / "t.tar", files)
    return in_this_process(open_dataset(os.fspath(place), in_place=True, **options))


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_a_recording_with_its_segments(served):
    shown = parts(served, MONDAY)
    recording, segments = shown["LinkedRecording"], shown["LinkedSegments"]["listed"]
    assert recording["facts"].startswith("1.296 s · 16,000 Hz · mono · 16-bit PCM · peak ")
    assert served.ask("/" + recording["sound"]).body == served.ask("/shards/000000000/talks/monday.wav").body
    assert [each["shown"]["text"] for each in segments] == ["Good morning.", "This is a talk."]
    assert segments[1]["sound"] == "segments/000000000/talks/monday/0001.wav"
    wanted = ["0001.wav", "0001.json", "0001.txt"]
    assert sorted(url.rpartition("/")[2] for _, url in segments[1]["files"]) == sorted(wanted)
    parsed = page(served, MONDAY)
    rows = parsed.all("tr", **{"data-start": "0.642"})
    assert rows[0]["id"] == "segment-1" and rows[0]["data-end"] == "1.296"
    (link,) = parsed.all("a", **{"data-segment": "1"})
    assert link["href"] == "../../../../segments/000000000/talks/monday/0001.wav"
    assert "Good morning. This is a talk." in parsed.text and len(parsed.all("svg", **{"class": "speech"})) == 1
    assert [each["href"] for each in parsed.all("a", rel="next")] == [
        "../../../../" + values(served, MONDAY)["following"]
    ]


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """A server of two recordings of 100 s: 450 and 250 segments in their first half, two at a time."""
    files = {}
    for key, count in (("a", 450), ("b", 250)):
        listed = [{"start": each / 10, "end": each / 10 + 0.2, "text": f"said {each}"} for each in range(count)]
        files |= {f"{key}.wav": tone(100.0), f"{key}.json": json.dumps({"segments": listed}).encode()}
    place = write_tar(tmp_path_factory.mktemp("spoken") / "t.tar", files)
    with in_this_process(open_dataset(os.fspath(place), in_place=True)) as port:
        yield AtPort(port)


def test_many_segments_are_on_pages(spoken):
    """Links to these pages keep the list that the sample is from."""
    texts, sizes, path = [], [], "/-/sample/t/a?sort=random&at=0"
    while path:
        listed = parts(spoken, path)["LinkedSegments"]
        texts += [each["shown"]["text"] for each in listed["listed"]]
        sizes.append(len(listed["listed"]))
        assert len(page(spoken, path).all("a", **{"class": "button play"})) == sizes[-1]
        assert values(spoken, path)["list"] == "-/samples?sort=random"
        path = listed["following"] and "/" + listed["following"].partition("#")[0]
    assert (sizes, texts) == ([200, 200, 50], [f"said {each}" for each in range(450)])
    last = parts(spoken, "/-/sample/t/a?segments=400")["LinkedSegments"]
    assert last["previous"] == "-/sample/t/a?segments=200#segment-200"
    assert spoken.ask(f"/-/sample/t/a?segments={9**18}").status == 200


def test_more_segments_than_lanes_have_room_for_are_a_strip(spoken):
    density = parts(spoken, "/-/sample/t/a")["LinkedSegments"]["density"]
    assert len(density) == 240 and {*density[2:105]} <= {5, 6, 7} and not any(density[109:])
    many, few = (page(spoken, f"/-/sample/t/{key}?segments=200") for key in "ab")
    assert [len(each.all("svg", **{"class": "density"})) for each in (many, few)] == [1, 0]
    assert [len(each.all("svg", **{"class": "speech"})) for each in (many, few)] == [0, 2]
    assert len([each for each in few.all("svg") if "data-segment" in each]) == 250


def test_pictures_of_a_recording(tmp_path):
    with served_files(tmp_path, {"a.wav": tone(1.0), "b.wav": tone(1.0, channels=2)}) as port:
        server = AtPort(port)
        shown = parts(server, "/-/sample/t/a")["LinkedRecording"]
        wave = server.ask("/" + shown["wave"])
        assert (
            wave.headers["Content-Type"] == "image/svg+xml; charset=utf-8"
            or wave.headers["Content-Type"] == "image/svg+xml"
        )
        tree = ElementTree.fromstring(wave.body)
        assert len(tree.findall(".//{*}path")) == 1 and tree.get("viewBox") == "0 0 1200 100"
        picture = Image.open(io.BytesIO(server.ask("/" + shown["spectrogram"]).body))
        night = Image.open(io.BytesIO(server.ask("/" + shown["spectrogram"] + "&night").body))
        assert (
            picture.size == night.size == (1200, ROWS)
            and picture.getpalette() == PAPER.ravel().tolist() != night.getpalette()
        )
        loudest = ROWS - 1 - np.asarray(picture)[:, 100:-100].argmax(axis=0)
        assert abs(loudest.astype(int) - row_of(1000, 8000)).max() <= 1
        stereo = parts(server, "/-/sample/t/b")["LinkedRecording"]
        assert len(ElementTree.fromstring(server.ask("/" + stereo["wave"]).body).findall(".//{*}path")) == 2


def test_by_key(served):
    wait_until(lambda: len(values(served, "/-/samples")["rows"]) == 10)
    got = served.ask("/-/sample?key=talks/monday")
    assert (got.status, got.headers["Location"]) == (302, "sample/000000000/talks/monday")
    assert served.ask("/-/sample?key=nobody").status == 404


def test_images_arrays_texts_and_files(tmp_path):
    image = io.BytesIO()
    Image.new("RGB", (30, 20), "red").save(image, "PNG")
    plane, line = np.arange(600.0).reshape(20, 30), np.arange(50, dtype=np.int32)
    files = {"a.png": image.getvalue(), "a.plane.npy": npy(plane), "a.line.npy": npy(line), "a.x.bin": b"??"}
    with served_files(
        tmp_path, {**files, "a.txt": EVIL.encode(), "a.json": b'{"long": "%s"}' % (b"y" * 70000)}
    ) as port:
        server = AtPort(port)
        shown = values(server, "/-/sample/t/a")["page"]["parts"]
        by_name = {part.get("name"): part for part in shown}
        assert by_name["png"]["source"] == "shards/t/a.png"
        assert by_name["plane.npy"]["facts"] == "float64, 20 × 30 · min 0 · mean 299.5 · max 599"
        heat = Image.open(io.BytesIO(server.ask("/" + by_name["plane.npy"]["source"]).body))
        levels = np.asarray(heat)
        assert heat.size == (30, 20) and levels[0, 0] < levels[10, 10] < levels[-1, -1]
        assert by_name["line.npy"]["facts"] == "int32, 50 · min 0 · mean 24.5 · max 49"
        assert server.ask("/-/array/shards/t/a.line.npy.png").status == 404
        assert (
            by_name["json"]["remark"].startswith("the first 65,536 of 70,0") and len(by_name["json"]["text"]) == 65536
        )
        parsed = page(server, "/-/sample/t/a")
        assert EVIL.replace("\u202e", "⟨U+202E⟩") in parsed.text and len(parsed.all("script")) == 1
        links = [url for url in parsed.urls if url.startswith("/shards/t/")]
        assert {*links} == {f"/shards/t/{name}" for name in [*files, "a.txt", "a.json"]}


def test_a_damaged_file_is_a_line_in_its_place(tmp_path):
    files = {"a.wav": b"RIFF not a WAV", "a.png": b"not a PNG", "a.npy": b"no", "a.txt": b"the text stands"}
    with served_files(tmp_path, {**files, "b.wav": tone(0.5)}) as port:
        server = AtPort(port)
        parsed = page(server, "/-/sample/t/a")
        assert len(parsed.marked("alarm")) == 3 and "the text stands" in parsed.text
        assert os.fspath(tmp_path) not in parsed.text
        for url in ("wave/shards/t/a.wav.svg", "spectrogram/shards/t/a.wav.png", "array/shards/t/a.npy.png"):
            got = server.ask(f"/-/{url}")
            assert (got.status, got.body.count(b"\n"), os.fsencode(tmp_path) in got.body) == (422, 1, False), url
        assert server.ask("/-/thumb/shards/t/a.png.jpg").status == 422
        assert server.ask("/-/sample/t/b").status == 200


def test_errors_lead_to_their_samples(tmp_path):
    lines = [b'{"id": "good", "text": "x"}', b"not JSON", b'{"id": "%s", "text": "y"}' % EVIL.encode(), b"{"]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "l.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    write_tar(tmp_path / "data" / "whole.tar", {"a.txt": b"fine"})
    (tmp_path / "data" / "broken.tar").write_bytes(b"no tar" * 1000)
    with in_this_process(open_dataset(os.fspath(tmp_path / "data"), in_place=True)) as port:
        server = AtPort(port)
        found = values(server, "/-/errors")
        assert {shard for shard, _, _ in found["lines"]} == {"l", "broken"} and found["total"] >= 3
        assert os.fspath(tmp_path) not in json.dumps(found)
        for _, line, url in found["lines"]:
            got = server.ask("/" + url, Accept="text/html")
            assert got.status == 200
            if url.startswith("-/sample"):
                assert line in Parsed(got.body).text
        overview = page(server, "/")
        assert "fine" in overview.text and overview.marked("alarm")
        assert values(server, "/-/errors?from=1")["lines"] == found["lines"][1:]


def test_rows_of_a_table(tmp_path):
    table = pa.table({"name": ["one", EVIL], "number": [1, 2], "url": ["https://example.com/x", "javascript:alert(1)"]})
    pq.write_table(table, tmp_path / "r.parquet")
    with in_this_process(open_dataset(os.fspath(tmp_path / "r.parquet"), in_place=True)) as port:
        server = AtPort(port)
        rows = values(server, "/-/samples")["rows"]
        assert len(rows) == 2 and "name: one" in rows[0]["text"]
        cells = parts(server, "/" + rows[1]["url"])["TextTable"]["rows"]
        assert ["name", EVIL] in cells and ["number", "2"] in cells
        parsed = page(server, "/" + rows[1]["url"])
        assert not any("example.com" in url or url.startswith("javascript") for url in parsed.urls)


def test_interleaved_documents_in_their_order(tmp_path):
    make_wds_tar(tmp_path / "i.tar", [mint_sample(number) for number in range(3)])
    dataset = open_dataset(os.fspath(tmp_path / "i.tar"), options=Options(kind=INTERLEAVED), in_place=True)
    with in_this_process(dataset) as port:
        server = AtPort(port)
        rows = values(server, "/-/samples?of=interleaved")["rows"]
        assert len(rows) == 3
        listed = json.loads(
            server.ask(
                "/interleaved/i/" + rows[0]["url"].rpartition("/")[2].partition("?")[0] + "/", Accept="application/json"
            ).body
        )
        shown = [part["name"] for part in values(server, "/" + rows[0]["url"])["page"]["parts"] if "name" in part]
        assert shown == [each["name"] for each in listed]


@pytest.mark.parametrize("key", ["a b/&%2e?x#y", "日本/語", "bad\udcff", "x" * 230, "deep/er/and/deeper"])
def test_odd_names_are_found_again(tmp_path, key):
    with served_files(tmp_path, {f"{key}.txt": b"found", f"{key}.json": b"{}", "other.txt": b"no"}) as port:
        server = AtPort(port)
        (url,) = [row["url"] for row in values(server, "/-/samples")["rows"] if row["text"] == "found"]
        assert "found" in page(server, "/" + url).text
