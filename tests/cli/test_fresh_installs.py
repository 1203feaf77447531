"""What users with data of their own type in their first hour, in fresh environments with the wheel and nothing else.

`base` has no extra, `complete` has `touchfs-shards[all]`. The data come from the tools that users have. They type in
`base` until a command needs an extra: its last line names the extra. Then they go on in `complete`.
"""

import io
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import lhotse
import numpy as np
import pytest
import soundfile
import webdataset
from built import build
from datasets import ClassLabel, Dataset, Features, Value
from interleaved_tars import WdsSample, make_wds_tar
from packaging.requirements import Requirement
from PIL import Image
from touchnet import UINT16, index_bytes

pytestmark = pytest.mark.variant

RATE = 16000
OURS = "touchfs-shards"
FUSE, ARROW, INTERLEAVED = "fuse", "arrow", "interleaved"


def write_recordings(place):
    place.mkdir()
    for name in "ab":
        soundfile.write(place / f"{name}.wav", (np.sin(np.arange(2 * RATE) / 9) * 9000).astype(np.int16), RATE)


def write_webdataset(here):
    (here / "shards").mkdir()
    for shard in range(3):
        with webdataset.TarWriter(str(here / f"shards/train-{shard:06d}.tar")) as sink:
            for number in range(4 * shard, 4 * shard + 4):
                about = {"caption": f"picture {number}", "score": number / 12}
                picture = np.full((8, 8, 3), number, np.uint8)
                sink.write({"__key__": f"sample{number:06d}", "png": picture, "cls": number % 3, "json": about})


def write_hugging_face(here):
    rows = {"id": ["r0", "r1"], "caption": ["a cat", "a dog"], "label": [0, 1]}
    label = ClassLabel(names=["cat", "dog"])
    made = Dataset.from_dict(rows, Features({"id": Value("string"), "caption": Value("string"), "label": label}))
    made.to_parquet(here / "pets.parquet")
    made.save_to_disk(here / "pets")


def write_kaldi(here):
    write_recordings(here / "audio")
    train = here / "data/train"
    train.mkdir(parents=True)
    (train / "wav.scp").write_text("".join(f"{name} {here}/audio/{name}.wav\n" for name in "ab"))
    (train / "segments").write_text("".join(f"{name}-{n} {name} {n} {n + 1}\n" for name in "ab" for n in range(2)))
    (train / "text").write_text("".join(f"{name}-{n} hello {name} {n}\n" for name in "ab" for n in range(2)))


def write_nemo(here):
    write_recordings(here / "audio")
    lines = [{"audio_filepath": f"{here}/audio/{n}.wav", "duration": 2.0, "text": f"hello {n}"} for n in "ab"]
    (here / "train_manifest.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_lhotse(here):
    write_recordings(here / "audio")
    cuts = []
    for name in "ab":
        recording = lhotse.Recording.from_file(here / f"audio/{name}.wav")
        words = lhotse.SupervisionSegment(name, name, 0.5, 1.0, text=f"hello {name}")
        cuts.append(lhotse.MonoCut(f"cut-{name}", 0, 2.0, 0, recording=recording, supervisions=[words]))
    made = lhotse.CutSet.from_cuts(cuts)
    made.to_file(here / "cuts.jsonl.gz")
    (here / "shar").mkdir()
    made.to_shar(here / "shar", fields={"recording": "wav"}, shard_size=1, compress_jsonl=False)


def write_whisper(here):
    write_recordings(here / "talks")
    for name in "ab":
        segments = [{"id": n, "start": float(n), "end": n + 1.0, "text": f" Sentence {n}."} for n in range(2)]
        said = {"text": " Sentence 0. Sentence 1.", "segments": segments, "language": "en"}
        (here / f"talks/{name}.json").write_text(json.dumps(said))


def write_megatron(here):
    documents = [np.arange(count, dtype=np.uint16) for count in (5, 9, 3)]
    (here / "corpus_text_document.bin").write_bytes(b"".join(map(np.ndarray.tobytes, documents)))
    (here / "corpus_text_document.idx").write_bytes(index_bytes(UINT16, [each.nbytes for each in documents]))


def write_documents(here):
    file = io.BytesIO()
    Image.new("RGB", (32, 16)).save(file, "PNG")
    members = [{f"doc{n}.0.png": file.getvalue()} for n in range(2)]
    samples = [WdsSample(f"doc{n}", ["Look:", None], [None, f"doc{n}.0.png"], members[n]) for n in range(2)]
    make_wds_tar(here / "mint/000.tar", samples)


def write_folder(here):
    (here / "photos").mkdir()
    for number in range(3):
        (here / f"photos/p{number}.jpg").write_bytes(b"\xff\xd8\xff")
        (here / f"photos/p{number}.txt").write_text(f"picture {number}")


# Who has which data, what he types, with what each command prints last, and the extra that he lacks in `base`.
USERS = {
    "WebDataset": (
        write_webdataset,
        [
            ("touchfs info shards | grep samples:", "samples:        12"),
            ("touchfs ls shards/*.tar:shards", "train-000002/"),
            ("touchfs iterate shards --where 'score > 0.8' --extension png", "shards/train-000002/sample000011.png"),
            ("touchfs convert shards best --to tar --where 'score > 0.8'", "best: 1 shard, 2 samples"),
            ("python -c 'import touchfs; print(len(touchfs.open(\"shards\")))'", "12"),
            ("touchfs mount shards mnt", "shards is mounted at {here}/mnt (3 shards, 12 samples)"),
            ("cat mnt/by-key/sample000007.json", '{{"caption": "picture 7", "score": 0.5833333333333334}}'),
        ],
        FUSE,
    ),
    "Hugging Face": (
        write_hugging_face,
        [
            ("touchfs ls pets.parquet:by-label", "dog/"),
            ("touchfs cat pets.parquet:by-label/dog/pets/r1.json", '{{"id": "r1", "caption": "a dog", "label": 1}}'),
            ("touchfs ls pets:shards/data-00000-of-00001", "r1.json"),
            ("touchfs mount pets mnt", "pets is mounted at {here}/mnt (1 shard, 2 samples)"),
            ("ls mnt/by-label", "dog"),
        ],
        ARROW,
    ),
    "Kaldi": (
        write_kaldi,
        [
            (
                "! touchfs info data/train 2>&1",
                "touchfs: {here}/data/train: is a Kaldi data directory: add --audio-root {here}/audio",
            ),
            ("touchfs ls data/train:segments/train/a --audio-root audio", "0001.wav"),
            ("touchfs manifest data/train --audio-root audio --kind nemo | wc -l", "4"),
            (
                "touchfs mount data/train mnt --audio-root audio",
                "data/train is mounted at {here}/mnt (1 shard, 2 samples)",
            ),
            ("cat mnt/segments/train/b/0001.txt", "hello b 1"),
        ],
        FUSE,
    ),
    "NeMo": (
        write_nemo,
        [
            (
                "touchfs info train_manifest.json",
                "the audio that train_manifest names is not shown: add --audio-root {here}/audio",
            ),
            ("touchfs ls train_manifest.json:segments/train_manifest/00000001 --audio-root audio", "0000.wav"),
            ("touchfs convert train_manifest.json tars --to tar --audio-root audio", "tars: 1 shard, 2 samples"),
            ("touchfs mount tars mnt", "tars is mounted at {here}/mnt (1 shard, 2 samples)"),
            ("ls mnt/shards/000000", "00000001.wav"),
        ],
        FUSE,
    ),
    "Lhotse": (
        write_lhotse,
        [
            ("touchfs info cuts.jsonl.gz", "the audio that cuts names is not shown: add --audio-root {here}/audio"),
            ("touchfs ls cuts.jsonl.gz:segments/cuts/cut-a --audio-root audio", "0000.wav"),
            ("touchfs cat shar:segments/cuts.000001/cut-b/0000.txt", "hello b"),
            ("touchfs mount shar mnt", "shar is mounted at {here}/mnt (2 shards, 2 samples)"),
            ("ls mnt/manifests/lhotse", "supervisions.jsonl"),
        ],
        FUSE,
    ),
    "Whisper": (
        write_whisper,
        [
            (
                "! touchfs info talks 2>&1",
                "as a.wav: `tar -cf talks.tar -C {here}/talks .` makes a shard of them",
            ),
            ("tar -cf talks.tar -C talks .", ""),
            ("touchfs cat talks.tar:segments/talks/a/0001.txt", " Sentence 1."),
            ("touchfs ls talks.tar:merged/max=30/talks/a", "0000.wav"),
            ("touchfs mount talks.tar mnt", "talks.tar is mounted at {here}/mnt (1 shard, 2 samples)"),
            ("ls mnt/segments/talks/b", "0001.wav"),
        ],
        FUSE,
    ),
    "Megatron": (
        write_megatron,
        [
            ("touchfs info corpus_text_document | grep samples:", "samples:        3"),
            ("touchfs cp corpus_text_document:shards/corpus_text_document/00000001.npy .", ""),
            ("python -c 'import numpy; print(numpy.load(\"00000001.npy\").tolist())'", "[0, 1, 2, 3, 4, 5, 6, 7, 8]"),
            (
                "touchfs mount corpus_text_document mnt",
                "corpus_text_document is mounted at {here}/mnt (1 shard, 3 samples)",
            ),
        ],
        FUSE,
    ),
    "documents": (
        write_documents,
        [
            ("touchfs ls mint:interleaved/000/doc1", "sample.json"),
            ("touchfs interleave mint out --to parquet", "out: 1 shard, 2 samples, 6 items"),
            ("touchfs mount mint mnt", "mint is mounted at {here}/mnt (1 shard, 2 samples)"),
            ("cat mnt/interleaved/000/doc0/000.txt", "Look:"),
        ],
        INTERLEAVED,
    ),
    "a folder": (
        write_folder,
        [
            (
                "! touchfs ls photos 2>&1",
                "as p0.jpg: `tar -cf photos.tar -C {here}/photos .` makes a shard of them",
            ),
            ("tar -cf photos.tar -C {here}/photos .", ""),
            ("touchfs ls photos.tar:shards/photos", "p2.txt"),
            ("touchfs mount photos.tar mnt", "photos.tar is mounted at {here}/mnt (1 shard, 3 samples)"),
        ],
        FUSE,
    ),
}
# How a command ends without an extra: its exit status, and what the last line has.
WITHOUT = {
    FUSE: (15, "touchfs: mounting needs the fuse extra (pyfuse3): install libfuse3-dev, pkg-config and gcc, then `"),
    ARROW: (1, "shard pets: Arrow and Parquet tables need pyarrow: "),
    INTERLEAVED: (1, "touchfs: interleaved samples need fsspec and pyarrow: "),
}


def run(environment, *command, **options):
    """Run a command of an environment, which sees neither the checkout nor what this interpreter has."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    own |= {"PATH": f"{environment}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONNOUSERSITE": "1"}
    return subprocess.run(command, env=own, text=True, check=False, stderr=subprocess.STDOUT, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("build"))[1]


def needed(wheel, extras):
    """The distributions that a wheel needs with some extras. Those of the tests fit: `make` has installed them so."""
    (about,) = (path for path in zipfile.Path(wheel).iterdir() if path.name.endswith(".dist-info"))
    known, asked = {OURS: PathDistribution(about)}, [(OURS, extras)]
    for name, extras in asked:  # which grows
        for each in map(Requirement, known[name].requires or ()):
            if each.marker and not any(each.marker.evaluate({"extra": extra}) for extra in extras or [""]):
                continue
            if each.name not in known:
                known[each.name] = distribution(each.name)
            assert each.specifier.contains(known[each.name].version, prereleases=True), each
            if (again := (each.name, tuple(sorted(each.extras)))) not in asked:
                asked.append(again)
    return [found for name, found in known.items() if name != OURS]


def install(place, wheel, *extras):
    """An environment with a wheel, and links to what it needs. To find and unpack that would take pip a minute."""
    venv.create(place, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": place}))
    for found in needed(wheel, extras):
        for name in {path.parts[0] for path in found.files} - {"..", "__pycache__"}:
            if not os.path.lexists(site / name):  # as `google`, which several have
                (site / name).symlink_to(found.locate_file(name))
    pip = [sys.executable, "-m", "pip", "--python", place / "bin/python"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel], check=True)
    subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
    return place


@pytest.fixture(scope="module")
def base(tmp_path_factory, wheel):
    return install(tmp_path_factory.mktemp("base") / "venv", wheel)


@pytest.fixture(scope="module")
def complete(tmp_path_factory, wheel):
    return install(tmp_path_factory.mktemp("all") / "venv", wheel, "all")


def test_they_have_what_was_asked_for(base, complete):
    names = ("touchfs", "pyfuse3", "pyarrow", "torch", "distributed", "psycopg")
    code = f"from importlib.util import find_spec; print(*filter(find_spec, {names}))"
    found = [run(place, "python", "-c", code, stdout=subprocess.PIPE).stdout.split() for place in (base, complete)]
    assert found == [["touchfs"], ["touchfs", "pyfuse3", "pyarrow"]]


def test_the_kernel_needs_no_extra(base, here, as_root):
    write_webdataset(here)
    try:
        done = run(base, "touchfs", "mount", "--kernel", "shards", "mnt", cwd=here, stdout=subprocess.PIPE)
        assert done.returncode == 0, done.stdout
        assert len(list((here / "mnt/shards").glob("*/*.png"))) == 12
    finally:
        if os.path.ismount(here / "mnt"):
            subprocess.run(["umount", here / "mnt"], check=True)


def typed(environment, here, commands):
    """Type commands until one fails: the exit status, the last line that each has printed, and all that was."""
    # Before each command its number, so that what it prints is found.
    script = "".join(f"echo \036; {command.format(here=here)}\n" for command, _ in commands)
    done = run(environment, "bash", "-e", "-o", "pipefail", "-c", script, cwd=here, stdout=subprocess.PIPE)
    return done.returncode, [part.strip("\n").split("\n")[-1] for part in done.stdout.split("\036\n")[1:]], done.stdout


@pytest.mark.parametrize("user", USERS)
def test_the_first_hour_of(user, base, complete, here):
    write, commands, extra = USERS[user]
    write(here)
    expected = [last.format(here=here) for _, last in commands]
    try:
        status, (*printed, last), told = typed(base, here, commands)
        assert "Traceback" not in told
        assert all(map(str.endswith, printed, expected)), told
        assert status == WITHOUT[extra][0] and WITHOUT[extra][1] in last, told
        assert f"pip install 'touchfs-shards[{extra}]'" in last
        # He does so, and goes on.
        status, rest, told = typed(complete, here, commands[len(printed) :])
        assert status == 0 and len(printed) + len(rest) == len(expected), told
        assert all(map(str.endswith, rest, expected[len(printed) :])), told
    finally:
        if os.path.ismount(here / "mnt"):
            subprocess.run(["fusermount3", "-u", here / "mnt"], check=True)
