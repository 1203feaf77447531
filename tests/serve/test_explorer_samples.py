"""The page of a sample: recording, pictures and segments, images, arrays, rows, documents, and what is damaged."""

import io
import json
import os
import subprocess
import zipfile
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from interleaved_tars import make_wds_tar, mint_sample
from PIL import Image
from served_pages import AtPort, Parsed, page, tone, values
from tars import write_tar
from tree_servers import in_this_process
from waiting import wait_until

from touchfs.indexing import open_dataset
from touchfs.pages import linked
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
    assert "400 to 449 of 450 segments" in page(spoken, "/-/sample/t/a?segments=400").text
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


def flac(samples):
    file = io.BytesIO()
    soundfile.write(file, samples, 8000, format="FLAC")
    return file.getvalue()


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A server of an hour in FLAC, silent but for a tone in the second half, of PCM, and of both in views."""
    sound = np.zeros(8000 * 3600, np.int16)
    sound[len(sound) // 2 :] = np.tile(np.frombuffer(tone(1.0), "<i2")[22:], 1800)
    files = {"hour.flac": flac(sound), "short.wav": tone(10.0), "none.txt": b"no sound"}
    place = write_tar(tmp_path_factory.mktemp("long") / "t.tar", files)
    with in_this_process(open_dataset(os.fspath(place), in_place=True)) as port:
        yield AtPort(port)


def heights(server, path):
    """How high the waveform is in each column."""
    tree = ElementTree.fromstring(server.ask("/" + path).body)
    points = [each.split(",") for each in tree.find(".//{*}path").get("d").strip("MZ").split("L")]
    tops, bottoms = points[: len(points) // 2], points[len(points) // 2 :][::-1]
    return np.array([float(low) - float(high) for (_, high), (_, low) in zip(tops, bottoms, strict=True)])


def test_a_part_of_a_recording(long):
    whole, part = (parts(long, f"/-/sample/t/short{query}")["LinkedRecording"] for query in ("", "?t=2,4.5"))
    assert (whole["start"], whole["drawn"], whole["overview"]) == (0, 10, "")
    assert dict(whole["zoom"]) == {"in": "-/sample/t/short?t=2.500,7.500"}
    assert (part["start"], part["drawn"], part["overview"]) == (2, 2.5, whole["wave"])
    assert dict(part["zoom"]) == {
        "in": "-/sample/t/short?t=2.625,3.875",
        "out": "-/sample/t/short?t=0.750,5.750",
        "earlier": "-/sample/t/short?t=0.000,2.500",
        "later": "-/sample/t/short?t=4.500,7.000",
        "whole": "-/sample/t/short",
    }
    parsed = page(long, "/-/sample/t/short?t=2,4.5")
    links = {name: each["href"] for each in parsed.all("a") if (name := each.get("data-zoom"))}
    assert links == {name: "../../../" + url for name, url in part["zoom"]}
    ends = [url for _, _, url in part["parts"]][::11]
    assert ends == ["-/sample/t/short?t=0.000,0.833", "-/sample/t/short?t=9.166,10.000"]
    assert "Below: 2.00 to 4.50." in parsed.text and "3.5" in parsed.texts
    assert (heights(long, whole["wave"]) > 90).all()  # of a tone, whose very samples are seen in a part that is short
    assert (heights(long, "-/wave/shards/t/short.wav.svg?t=2,2.01") < 10).all()
    assert long.ask("/" + part["spectrogram"]).status == 200


@pytest.mark.parametrize(
    "t", ["", "x", "1", "1,", "2,1", "1,1", "-1,2", "1,2,3", "1e3,2e3", "0,10.1", "20,30", "nan,1", "0,9" * 99]
)
def test_a_part_that_is_none_is_refused(long, t):
    for path in (
        "/-/sample/t/short?",
        "/-/wave/shards/t/short.wav.svg?",
        "/-/spectrogram/shards/t/short.wav.png?w=99&",
    ):
        got = long.ask(f"{path}t={t}")
        assert (got.status, got.body.count(b"\n")) == (400, 1), path


def test_an_hour_is_seen_at_once(long):
    """The first minute is decoded, and of all short stretches: the page says so."""
    first = parts(long, "/-/sample/t/hour")["LinkedRecording"]
    assert (first["drawn"], first["seconds"], first["remark"]) == (60.000125, 3600, "the first 60 s of 1:00:00 h")
    assert first["overview_remark"] == "sampled: 0.25 s of every 30 s" and len(first["parts"]) == 12
    assert first["overview_remark"] in page(long, "/-/sample/t/hour").text
    seen = heights(long, first["overview"])
    assert (seen[:590] < 2).all() and (seen[610:] > 50).all()
    later = parts(long, "/" + first["parts"][8][2])["LinkedRecording"]
    assert (later["start"], later["drawn"], later["remark"]) == (2400, 300, "sampled: 0.25 s of every 2.5 s")
    assert (heights(long, later["wave"]) > 50).all()
    near = parts(long, "/-/sample/t/hour?t=1799,1801")["LinkedRecording"]
    assert near["remark"] == ""
    seen = heights(long, near["wave"])
    assert (seen[:590] < 2).all() and (seen[610:] > 50).all()


def test_segments_follow_the_part(spoken):
    shown = parts(spoken, "/-/sample/t/a?t=10,12&sort=random&at=0")
    listed = shown["LinkedSegments"]
    assert [each["shown"]["text"] for each in listed["listed"]] == [f"said {each}" for each in range(99, 120)]
    assert (listed["count"], listed["all"], listed["density"]) == (21, 450, [])
    assert [each["number"] for each in listed["lanes"]] == [*range(99, 120)]
    assert all("sort=random&at=0" in url for _, url in shown["LinkedRecording"]["zoom"])
    assert "21 segments in this part, of 450 in all" in page(spoken, "/-/sample/t/a?t=10,12").text
    assert parts(spoken, "/-/sample/t/a?t=60,61")["LinkedSegments"]["count"] == 0
    assert parts(spoken, "/-/sample/t/a?t=0,50")["LinkedSegments"]["density"]


def test_frames_of_a_video(tmp_path):
    for name, coding in (("v.mp4", "libx264"), ("v.mkv", "mpeg4")):
        source = ("-f", "lavfi", "-i", "testsrc2=size=320x180:rate=10:duration=2")
        subprocess.run(["ffmpeg", "-v", "error", *source, "-c:v", coding, tmp_path / name], check=True)
    video = (tmp_path / "v.mp4").read_bytes()
    files = {"a.mp4": video, "b.mkv": (tmp_path / "v.mkv").read_bytes(), "c.mp4": video[:3000], "d.mp4": b"x" * 5000}
    with served_files(tmp_path, files) as port:
        server = AtPort(port)
        for key in "ab":
            found = parts(server, f"/-/sample/t/{key}")["LinkedVideo"]
            images = [Image.open(io.BytesIO(server.ask("/" + url).body)) for _, url in found["frames"]]
            assert [name for name, _ in found["frames"]] == ["begin", "20 %", "40 %", "60 %", "80 %", "end"]
            assert {(image.format, image.size) for image in images} == {("JPEG", (320, 180))}
            assert len({image.tobytes() for image in images}) == 6
            assert len(page(server, f"/-/sample/t/{key}").all("video")) == (key == "a")
            assert server.ask("/" + found["frames"][0][1].replace("n=0", "n=6")).status == 400
        for key in "cd":
            urls = [url for _, url in parts(server, f"/-/sample/t/{key}")["LinkedVideo"]["frames"]]
            assert {(got.status, got.body.count(b"\n")) for got in map(server.ask, map("/".__add__, urls))} == {
                (422, 1)
            }


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
    urls = ["https://example.com/x", "javascript:alert(1)"]
    rows = {"name": ["one", EVIL], "number": [1, 2], "none": [None, None], "is": [True, False], "url": urls}
    table = pa.table(rows)
    pq.write_table(table, tmp_path / "r.parquet")
    with in_this_process(open_dataset(os.fspath(tmp_path / "r.parquet"), in_place=True)) as port:
        server = AtPort(port)
        rows = values(server, "/-/samples")["rows"]
        assert len(rows) == 2 and "name: one" in rows[0]["text"]
        cells = parts(server, "/" + rows[1]["url"])["TextTable"]["rows"]
        assert ["name", EVIL] in cells and ["number", "2"] in cells
        assert ["none", "null"] in cells and ["is", "false"] in cells and "none: null, is: true" in rows[0]["text"]
        parsed = page(server, "/" + rows[1]["url"])
        assert not any("example.com" in url or url.startswith("javascript") for url in parsed.urls)


@pytest.mark.parametrize("kind", ["rows", "upper"])
def test_every_row_of_a_list_leads_to_its_sample(tmp_path, kind):
    """Also where a row has a directory of cells, and where extensions are in upper case."""
    if kind == "rows":
        place, cells = tmp_path / "r.parquet", [b"one", b"two"]
        pq.write_table(pa.table({"first": cells, "second": cells, "name": ["a", "b"]}), place)
    else:
        place = tmp_path / "z.zip"
        with zipfile.ZipFile(place, "w") as archive:
            for name in ("a.WAV", "dir/b.TXT", "c.tar.JSON"):
                archive.writestr(name, tone(0.1) if "WAV" in name else b"{}")
    with in_this_process(open_dataset(os.fspath(place), in_place=True)) as port:
        server = AtPort(port)
        rows = values(server, "/-/samples")["rows"]
        assert len(rows) == (2 if kind == "rows" else 3)
        for row in rows:
            assert values(server, "/" + row["url"])["page"]["title"] == row["key"]


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


def test_a_sample_is_found_among_names_that_begin_so(tmp_path, monkeypatch):
    monkeypatch.setattr(linked, "_NAMESAKES", 3)
    names = ["a", "a-1", "a-2", "a!1", "a-3", "a-4", "a0", "b"]
    with served_files(tmp_path, {f"{name}.txt": f"text of {name}".encode() for name in names}) as port:
        for row in values(AtPort(port), "/-/samples")["rows"]:
            assert parts(AtPort(port), "/" + row["url"])["Text"]["text"] == row["text"]


def test_a_page_has_bounds_whatever_the_data_are(tmp_path):
    """Indents that would be most of a page, a segment with a text as long as a book, a sample of many files."""
    deep = "[" * 800 + ",".join("1" * 31_000) + "]" * 800
    book = {"segments": [{"start": 0, "end": 0.5, "text": "b" * 1_000_000, "speaker": "s" * 1_000_000}]}
    files = {"a.json": deep.encode(), "b.wav": tone(1.0), "b.json": json.dumps(book).encode()}
    files |= {f"c.{number:05}.txt": b"many" for number in range(3000)}
    with served_files(tmp_path, files) as port:
        server = AtPort(port)
        assert parts(server, "/-/sample/t/a")["Text"]["text"] == deep[:65536]
        for key in "abc":
            assert len(server.ask(f"/-/sample/t/{key}", Accept="text/html").body) < 300_000, key
        shown = parts(server, "/-/sample/t/b")["LinkedSegments"]["listed"][0]
        assert shown["shown"]["text"] == "b" * 4096 + " …" and len(shown["shown"]["speaker"]) < 300
        assert server.ask("/" + next(url for name, url in shown["files"] if name == "txt")).body == b"b" * 1_000_000
