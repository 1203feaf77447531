"""`touchfs show`: what a person sees of samples and files, on a terminal and where there is none."""

import io
import json
import os
import pty
import re
import struct
import subprocess
import termios
import time
from fcntl import ioctl

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import TOUCHFS
from PIL import Image
from rich.cells import cell_len
from tars import write_tar

from touchfs.explore.terminal import wrapped
from touchfs.format import wav

STYLE = re.compile(r"\x1b\[[0-9;]*m")
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
EVIL = "a\x1b[31mb\n\x1b]0;t\x07c\x85d\x9be\u202evaw\x00"
SHADES = re.compile("[ ░▒▓█]{20,}")


def png(colour, size=(40, 30), mode="RGB"):
    file = io.BytesIO()
    Image.new(mode, size, colour).save(file, "PNG")
    return file.getvalue()


def tone_wav(frequency, rate, seconds):
    samples = 0.5 * np.sin(2 * np.pi * frequency * np.arange(int(rate * seconds)) / rate)
    data = (samples * 32767).astype("<i2").tobytes()
    return wav.build_header(len(data), rate) + data


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    """A tar with a sample of each kind."""
    segments = [
        {"start": 0, "end": 0.5, "text": "Good morning.", "speaker": "ann"},
        {"start": 0.4, "end": 1.0, "text": "你好。", "speaker": "bo"},
    ]
    files = {
        "a.wav": tone_wav(1000, 16000, 1.0),
        "a.json": json.dumps({"segments": segments}).encode(),
        "b.png": png((255, 0, 0)),
        "b.txt": b"a red image",
        "c.npy": npy(np.arange(800).reshape(8, 100)),
        "c.tokens.npy": npy(np.arange(5000)),
        "d.wav": b"RIFF no wav",
        "d.jpg": b"\xff\xd8 no image",
        "d.npy": b"no array",
        "e.png": png(0, (9000, 8000), "1"),
    }
    return write_tar(tmp_path_factory.mktemp("show") / "things.tar", files)


def terminal(*arguments, columns=90, **environment):
    """What `touchfs show` writes to a terminal."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    variables = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"} | environment
    variables.pop("COLUMNS", None)  # which would count before the size of the terminal
    # A bar of progress is not part of what is shown.
    run = [TOUCHFS, "show", *arguments]
    with subprocess.Popen(run, stdout=follower, stderr=subprocess.DEVNULL, env=variables) as process:
        os.close(follower)
        found = b""
        try:
            while data := os.read(leader, 1 << 16):
                found += data
        except OSError:  # how Linux says that all is read
            pass
    os.close(leader)
    assert process.returncode == 0, found
    return found.decode().replace("\r\n", "\n")


def test_a_recording_is_a_wave_a_spectrogram_and_segments(text, things):
    shown = text("show", f"{things}:shards/things/a.wav")
    lines = shown.splitlines()
    assert lines[0].split() == ["a", "things", "1", "of", "5"]
    assert "1.000 s · 16,000 Hz · mono · 16-bit PCM · peak −6.0" in shown
    assert not CONTROL.search(shown) and max(map(cell_len, lines)) <= 80
    picture = [line for line in lines if SHADES.search(line[6:])]
    (loudest,) = [line for line in picture if re.search("[░▒▓█]{20,}", line)]
    assert loudest.lstrip().startswith("1k")
    lanes = [line for line in lines if line.lstrip().startswith("▏")]
    assert "Good morning." in lanes[0] and "你好。" in lanes[1]  # they overlap
    assert "   0  0.000 – 0.500  ann: Good morning." in lines
    assert f"Files   wav {32044:,}   json" in shown


def test_a_file_of_any_view_is_shown(text, things):
    assert "segment 1" in text("show", f"{things}:segments/things/a/0001.wav").splitlines()[0]
    assert "0.250 s" in text("show", f"{things}:slices/0.25-0.5/things/a.wav")
    assert text("show", f"{things}:by-key/b.png") == text("show", f"{things}:shards/things/b.png")
    assert text("show", f"{things}:segments/things/a").splitlines()[0].startswith("a")


def test_an_image_is_half_blocks(text, things):
    assert "PNG · 40 × 30" in text("show", f"{things}:shards/things/b.png")
    shown = terminal(f"{things}:shards/things/b.png")
    assert f"\x1b[38;2;255;0;0;48;2;255;0;0m{'▀' * 40}\x1b[0m" in shown
    assert "a red image" in shown
    assert "\x1b[38;5;196;48;5;196m" in terminal(f"{things}:shards/things/b.png", COLORTERM="")
    assert "\x1b" not in terminal(f"{things}:shards/things/b.png", NO_COLOR="1")


def test_arrays_have_a_picture_and_numbers(text, things):
    shown = text("show", f"{things}:shards/things/c.npy")
    assert "int64, 8 × 100 · min 0 · mean 399.5 · max 799" in shown
    assert "tokens.npy  int64, 5000" in shown and "0 1 2 3 4" in re.sub(" +", " ", shown)


def test_what_is_damaged_or_too_large_says_so_in_its_place(text, things):
    shown = text("show", f"{things}:shards/things/d.wav")
    for name in ("wav: ", "jpg: ", "npy: "):
        assert re.search(f"^{name}.+", shown, re.MULTILINE)
    assert "png: an image of 9,000 x 8,000 pixels is not decoded" in text("show", f"{things}:shards/things/e.png")


def test_a_directory_of_many_samples_says_what_to_name(touchfs, things):
    done = touchfs("show", f"{things}:slices")
    assert done.returncode == 2 and b"is a directory: name a sample or a file in it" in done.stderr


@pytest.mark.parametrize("columns", [20, 90, 300])
def test_no_line_is_wider_than_the_terminal(things, columns):
    for name in ("a.wav", "b.png", "c.npy", "d.wav"):
        shown = STYLE.sub("", terminal(f"{things}:shards/things/{name}", columns=columns))
        assert max(map(cell_len, shown.splitlines())) <= columns, shown


def test_a_long_word_is_wrapped_in_no_time():
    word = "漢é" + "x" * (1 << 18)
    began = time.process_time()
    lines = wrapped(word, 20)
    assert time.process_time() - began < 5
    assert "".join(lines) == word and max(map(cell_len, lines)) == 20


def test_texts_of_data_send_nothing_to_the_terminal(here, text):
    segment = {"start": 0, "end": 0.5, "text": EVIL, "speaker": EVIL}
    files = {
        "a\x1b[31m.wav": tone_wav(440, 8000, 1.0),
        "a\x1b[31m.json": json.dumps({"segments": [segment], EVIL: EVIL}).encode(),
        "a\x1b[31m.txt": EVIL.encode() + b"\xff\xfe",
        "a\x1b[31m.x\x9b\u202ey.txt": EVIL.encode(),
    }
    tar = write_tar(here / "evil.tar", files)
    (path,) = [line for line in text("ls", f"{tar}:by-key").splitlines() if line.endswith(".wav")]
    for shown in (text("show", f"{tar}:by-key/{path}"), STYLE.sub("", terminal(f"{tar}:by-key/{path}"))):
        assert not CONTROL.search(shown), shown
        assert "\\u001b" in shown


def test_a_dataset_is_facts_and_bars(text, things):
    shown = text("show", things)
    lines = shown.splitlines()
    assert lines[0].split() == ["things.tar", "tar", "·", "1", "shard"]
    assert lines[1].startswith("5 samples · 1.000 s")
    assert "Duration  median 1 s, 99 % up to 1" in shown and re.search("^wav +█.* 2 · 31.3 KiB$", shown, re.MULTILINE)
    assert text("show", f"{things}:shards/things").splitlines()[1:] == lines[1:]
    assert max(map(cell_len, lines)) <= 80 and not CONTROL.search(shown)


def test_a_choice_of_samples_is_counted_alone(here, text, touchfs, things):
    lines = text("show", things, "--where", "key == 'a'").splitlines()
    assert lines[1].startswith("1 of 5 samples · 1.000 s · 2 segments · 31.") and lines[2] == "where key == 'a'"
    assert next(line for line in lines if line.startswith("wav  ")).endswith("1 · 31.3 KiB")
    assert lines[-2].split() == ["key", "duration", "text"] and lines[-1].startswith("a ")
    assert text("show", f"{things}:shards/things", "--take", "2").splitlines()[2] == "the first 2"
    text("show", things, "-o", "chosen.html", "--where", "size.png exists")
    titles = re.findall("<h[12][^>]*>([^<]*)<", (here / "chosen.html").read_text(encoding="utf-8"))
    assert "b" in titles and "e" in titles and "a" not in titles
    done = touchfs("show", f"{things}:shards/things/a.wav", "--take", "2")
    assert done.returncode == 2 and b"--where and --take choose samples of a dataset or a shard" in done.stderr
    assert touchfs("show", things, "--where", "a b").returncode == 2


def test_images_of_a_dataset_are_small_ones_beside_each_other(here, text):
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    files = {f"{number}.png": png(colour, (40, 40)) for number, colour in enumerate(colours)}
    tar = write_tar(here / "images.tar", files | {"damaged.png": b"no image", "z.png": png((9, 9, 9), (80, 40))})
    shown = terminal(tar)
    lines = [line for line in shown.splitlines() if all(f"38;2;{r};{g};{b};" in line for r, g, b in colours)]
    assert [len(STYLE.sub("", line).rstrip()) for line in lines] == [4 * 18 + 3 * 2] * 5 + [3 * 18 + 2 * 2] * 4
    assert "Image size  2 sizes of 4 images · median 40 × 40" in STYLE.sub("", shown)
    assert re.search("^40 × 40 +█+ +75.0 %$", STYLE.sub("", shown), re.MULTILINE)
    text("show", tar, "-o", "images.html", "--samples", "0")
    assert (here / "images.html").read_text(encoding="utf-8").count("<figcaption") == 4


def test_columns_of_a_table_have_types_and_nulls(here, text):
    columns = {"name": ["a", None, "c", None], "number": [1, 2, 3, 4]}
    pq.write_table(pa.table(columns), here / "table.parquet")
    lines = text("show", here / "table.parquet").splitlines()
    assert "unknown length" not in lines[1]
    start = lines.index("Columns")
    assert [line.split() for line in lines[start + 1 : start + 4]] == [
        ["column", "type", "null"],
        ["name", "utf8", "50.0", "%"],
        ["number", "int64", "0.0", "%"],
    ]


def test_a_video_has_frames_and_its_sound(here, text):
    for name, sound in (("a.mp4", ("-f", "lavfi", "-i", "sine=duration=3")), ("b.mp4", ())):
        picture = ("-f", "lavfi", "-i", "testsrc=duration=3:size=64x48:rate=5")
        run = ["ffmpeg", "-loglevel", "error", *picture, *sound, "-pix_fmt", "yuv420p", name]
        subprocess.run(run, check=True, stdin=subprocess.DEVNULL)
    files = {name: (here / name).read_bytes() for name in ("a.mp4", "b.mp4")}
    tar = write_tar(here / "videos.tar", files | {"c.mp4": b"no video"})
    shown = text("show", f"{tar}:shards/videos/a.mp4")
    assert re.search("^0.00 s +1.00 s +2.00 s$", shown, re.MULTILINE) and "44,100 Hz · mono · aac" in shown
    silent = text("show", f"{tar}:shards/videos/b.mp4")
    assert "0.00 s" in silent and "sound" not in silent
    assert re.search("^mp4: .+", text("show", f"{tar}:shards/videos/c.mp4"), re.MULTILINE)


def test_a_report_is_one_file(text, touchfs, things, here):
    assert text("show", things, "-o", "report.html", "--samples", "5") == ""
    report = (here / "report.html").read_text(encoding="utf-8")
    assert len(report.encode()) < 5_000_000 and "<script" not in report and report.count("<section>") == 6
    assert "data:audio/wav" in report and 'class="photo' in report and "你好。" in report
    assert not re.search(r'(?:src|href|srcset)="(?!data:)', report)
    text("show", f"{things}:shards/things/a.wav", "-o", "a.svg")
    assert (here / "a.svg").read_text(encoding="utf-8").startswith("<svg")
    done = touchfs("show", things, "-o", "report.pdf")
    assert done.returncode == 2 and b"-o takes a name that ends with .html or .svg" in done.stderr
    done = touchfs("show", things, "-o", "report.svg")
    assert done.returncode == 2 and b"has no picture: -o FILE.html shows texts and numbers" in done.stderr


def test_a_long_line_is_cut_and_takes_no_time(here, text):
    tar = write_tar(
        here / "long.tar", {"a.txt": b"x" * 1_000_000, "a.json": json.dumps({"a": "\u4f60" * 20_000}).encode()}
    )
    shown = text("show", f"{tar}:shards/long/a.txt", timeout=60)
    assert "the first 65,536 of 1,000,000 bytes" in shown and len(shown.splitlines()) < 50
    assert max(map(cell_len, shown.splitlines())) <= 80
