"""`convert`, `pack`, `interleave` and `meta` make of data at a URL what they make of the same data on the disk."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import s3fs
import soundfile
from arrow_tables import pictures, write_cache
from click.testing import CliRunner
from command import TOUCHFS
from every_kind import LINES
from interleaved_tars import make_image, make_wds_tar, mint_sample
from range_server import range_server
from s3_server import s3_server, upload
from tars import write_tar
from touchnet import write_speech

from touchfs.cli.main import group
from touchfs.core.errors import ChangedError, FormatError, UsageError
from touchfs.source.remote import clients

SPEECH = Path(__file__).parent.parent / "data" / "speech"
FEATURES = {"image": {"type": "Image"}, "label": {"type": "Value", "dtype": "string"}}
STORES = ["s3", "http"]


def write_data(place):
    """Shards of several kinds, and lists with the files that they name."""
    write_speech(place / "touch", [({"key": f"u{i}", "sample_rate": 8000}, bytes([i]) * 4000) for i in range(5)])
    (place / "tar").mkdir()
    for number in range(3):
        write_tar(place / f"tar/{number}.tar", {f"s{number}{i}.{e}": bytes(700) for i in range(5) for e in ("a", "b")})
    make_wds_tar(place / "tar.gz" / "a.tar.gz", [("x.txt", b"x"), ("y.txt", b"y")])
    (place / "lines").mkdir()
    (place / "lines" / "a.jsonl").write_bytes(LINES)
    (place / "parquet").mkdir()
    pq.write_table(pictures(), place / "parquet" / "a.parquet")
    write_cache(place / "cache", [pictures(), pictures()])
    make_wds_tar(place / "documents" / "a.tar", [mint_sample(number) for number in range(3)])
    make_wds_tar(place / "documents" / "b.tar", [mint_sample(number) for number in range(3, 5)])
    (place / "speech" / "wav").mkdir(parents=True)
    for path in (SPEECH / "wav").iterdir():
        (place / "speech" / "wav" / path.name).write_bytes(path.read_bytes())
    (place / "speech" / "data.jsonl").write_bytes((SPEECH / "speech.jsonl").read_bytes())
    for number, line in enumerate((SPEECH / "speech.jsonl").read_text().splitlines()[:3]):
        samples, rate = soundfile.read(SPEECH / json.loads(line)["wav"])
        soundfile.write(place / "speech" / f"{number}.flac", samples, rate)
    lines = [{"key": str(number), "wav": f"{number}.flac", "txt": "x"} for number in range(3)]
    (place / "speech" / "flac.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (place / "images").mkdir()
    for number in range(3):
        (place / "images" / f"{number}.png").write_bytes(make_image("png", seed=number))
    rows = [{"image": f"{number}.png", "label": f"label {number}"} for number in range(3)]
    (place / "images" / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The local directory of the data, and its URL by store."""
    place = tmp_path_factory.mktemp("bulk")
    write_data(place)
    with pytest.MonkeyPatch.context() as patch, range_server() as server, s3_server(patch) as s3:
        patch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path_factory.mktemp("scratch")))
        upload(s3, place, "data/set")
        for path in filter(lambda path: path.is_file(), place.rglob("*")):
            server.put(f"/set/{path.relative_to(place)}", path.read_bytes())
        yield {"local": str(place), "http": f"{server.url}/set", "s3": "s3://data/set"}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "features.json").write_text(json.dumps(FEATURES))


def run(*arguments, stdin=b""):
    """The result of a command in this process."""
    return CliRunner().invoke(group, arguments, input=stdin)


def run_process(*arguments):
    return subprocess.run([TOUCHFS, *arguments], capture_output=True, check=False, timeout=100)


def files_of(output):
    """All files of an output, which is removed."""
    found = {str(path.relative_to(output)): path.read_bytes() for path in Path(output).rglob("*") if path.is_file()}
    shutil.rmtree(output)
    return found


def made(source, *arguments):
    """The files that a command makes from a source."""
    done = run(*(each.format(source) for each in arguments))
    assert done.exit_code == 0, done.exception
    return files_of("out")


CONVERT = ["convert", "{}", "out", "--to"]
COMMANDS = {
    "tar": ["tar", *CONVERT, "tar", "--num-utt-per-shard", "4", "--jobs", "1"],
    "touch to shar": ["touch", *CONVERT, "shar", "--jobs", "1"],
    "compressed": ["tar.gz", *CONVERT, "tar", "--index", "--jobs", "1"],
    "lines": ["lines", *CONVERT, "tar", "--jobs", "1"],
    "tar to parquet": ["tar", *CONVERT, "parquet"],
    "table to arrow": ["parquet", *CONVERT, "arrow"],
    "cache to parquet": ["cache", *CONVERT, "parquet"],
    "documents": ["documents", *CONVERT, "tar", "--kind", "interleaved", "--jobs", "1"],
    "filtered": ["documents", "interleave", "{}/*.tar", "out", "--to", "wds", "--where", "width > 24", "--jobs", "1"],
    "pack touchnet": ["speech/data.jsonl", "pack", "touchnet", "{}", "out", "--num-utt-per-shard", "4", "--jobs", "1"],
    "pack decoded": ["speech/flac.jsonl", "pack", "touchnet", "{}", "out", "--audio-resample", "8000", "--jobs", "1"],
    "pack tar": ["speech/data.jsonl", "pack", "tar", "{}", "out", "--num-utt-per-shard", "3", "--jobs", "1"],
    "pack shar": ["speech/data.jsonl", "pack", "shar", "{}", "out", "--jobs", "1"],
    "pack arrow": ["images/list.jsonl", "pack", "arrow", "{}", "out", "--features", "features.json"],
}


# Each command with one of the stores, in turn, and as a variant with the other one.
PAIRS = [
    pytest.param(name, store, marks=() if (place + turn) % 2 else pytest.mark.variant)
    for place, name in enumerate(COMMANDS)
    for turn, store in enumerate(STORES)
]


@pytest.mark.parametrize(("name", "store"), PAIRS)
def test_the_same_bytes(places, name, store):
    kind, *arguments = COMMANDS[name]
    expected = made(f"{places['local']}/{kind}", *arguments)
    assert expected
    assert made(f"{places[store]}/{kind}", *arguments) == expected


@pytest.mark.parametrize(
    ("store", "name", "command"),
    [
        pytest.param("s3", "tar", [*CONVERT, "tar", "--num-utt-per-shard", "4", "--jobs"], marks=pytest.mark.variant),
        ("http", "speech/data.jsonl", ["pack", "tar", "{}", "out", "--num-utt-per-shard", "3", "--jobs"]),
    ],
)
def test_several_processes(places, store, name, command):
    expected = made(f"{places['local']}/{name}", *command, "1")
    done = run_process(*(each.format(f"{places[store]}/{name}") for each in (*command, "2")))
    assert done.returncode == 0, done.stderr
    assert files_of("out") == expected


def test_lance_has_the_same_rows(places):
    import lance

    tables = []
    for store in ("local", *STORES):
        output = f"{store}.lance"
        assert run("convert", f"{places[store]}/parquet", output, "--to", "lance").exit_code == 0
        tables.append(lance.dataset(output).to_table())
    assert tables[0].num_rows
    assert tables[1] == tables[0] == tables[2]


def test_rows_of_documents_name_their_tar(places):
    """A Parquet file says where its images are from, so only the paths differ."""
    expected = None
    for store in ("local", *STORES):
        done = run("interleave", f"{places[store]}/documents/a.tar", store, "--to", "parquet", "--jobs", "1")
        assert done.exit_code == 0, done.exception
        rows = pq.read_table(f"{store}/000000.parquet").to_pylist()
        refs = [json.loads(row.pop("source_ref")) for row in rows]
        assert all(ref.pop("path").startswith(places[store]) for ref in refs)
        expected = expected or (rows, refs)
        assert (rows, refs) == expected


@pytest.mark.parametrize("store", STORES)
def test_annotations_can_be_read_and_not_put(places, store):
    url = f"{places[store]}/touch"
    lines = run("meta", "get", f"{places['local']}/touch")
    assert run("meta", "get", url).stdout_bytes == lines.stdout_bytes != b""
    refused = run("meta", "put", url, "--jobs", "1", stdin=lines.stdout_bytes).exception
    assert str(refused) == (
        f"{url}: annotations are replaced in shards of this machine only: copy them, put, and upload them"
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["convert", "{}/tar", "{}/new", "--to", "tar", "--jobs", "1"], "directories of this machine only"),
        (["convert", "{}/tar", "{}/new", "--to", "parquet"], "directories of this machine only"),
        (["pack", "tar", "{}/speech/data.jsonl", "{}/new", "--jobs", "1"], "directories of this machine only"),
        (["pack", "tar", "{}/speech", "out", "--jobs", "1"], "is a directory"),
        (["interleave", "{}/documents", "{}/new", "--jobs", "1"], "directories of this machine only"),
        (["pack", "arrow", "{}/speech/wav", "out", "--features", "features.json"], "a folder of files is packed from"),
    ],
)
def test_what_cannot_work_is_refused_in_a_line(places, arguments, reason):
    done = run(*(each.format(places["s3"]) for each in arguments))
    assert isinstance(done.exception, UsageError)
    assert reason in str(done.exception)
    assert os.listdir() == ["features.json"]


@pytest.mark.parametrize("name", ["{}/secret.png", "../secret.png", "s3://data/set/images/0.png", "a/../../secret.png"])
def test_a_list_of_another_store_names_only_what_is_below_it(places, name, tmp_path):
    (tmp_path / "secret.png").write_bytes(b"secret")
    s3 = s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)
    for kind, key, *options in (["tar", "wav", "--jobs", "1"], ["arrow", "image", "--features", "features.json"]):
        s3.pipe("data/evil/list.jsonl", json.dumps({key: name.format(tmp_path), "label": "x"}).encode())
        done = run("pack", kind, f"{places['s3'].removesuffix('set')}evil/list.jsonl", f"out-{kind}", *options)
        assert "the path leads out of its directory" in str(done.exception)


def test_a_conversion_is_not_resumed_with_another_version(places, tmp_path):
    """The etag decides: sizes are equal, and S3's times are not looked at."""
    with range_server() as server:
        server.put("/a.tar", write_tar(tmp_path / "a.tar", {"a.x": b"1", "b.x": b"2"}).read_bytes(), '"1"')
        bad = write_tar(tmp_path / "b.tar", {"c.x": b"3"}).read_bytes()
        server.put("/b.tar", bad[:1024] + b"d" * (len(bad) - 1024), '"1"')
        arguments = [*CONVERT, "tar", "--num-utt-per-shard", "1", "--jobs", "1"]
        command = [each.format(f"{server.url}/{{a,b}}.tar" if each == "{}" else each) for each in arguments]
        assert isinstance(run(*command).exception, FormatError)
        assert list(Path("out").glob("*.tar"))
        server.put("/a.tar", write_tar(tmp_path / "a.tar", {"a.x": b"9", "b.x": b"8"}).read_bytes(), '"2"')
        server.put("/b.tar", bad, '"2"')
        assert isinstance(run(*command).exception, ChangedError)


def test_options_of_the_store(places, monkeypatch, tmp_path):
    """The endpoint and the key come from the options alone; workers have them, too."""
    variables = ["AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
    options = dict(zip(("endpoint_url", "key", "secret"), map(os.environ.get, variables), strict=True))
    (tmp_path / "options.json").write_text(json.dumps({"s3": options}))
    (tmp_path / "options.json").chmod(0o600)
    for variable in variables:
        monkeypatch.delenv(variable)
    given = ["--options-file", "options.json", "--timeout", "20"]
    command = ["convert", "{}/tar", "out", "--to", "tar", "--jobs", "2"]
    done = run_process(*(each.format(places["s3"]) for each in command), *given)
    assert done.returncode == 0, done.stderr
    assert files_of("out")
    for command in (
        ["pack", "tar", "{}/speech/data.jsonl", "out", "--jobs", "1"],
        ["interleave", "{}/documents", "out", "--jobs", "1"],
        ["meta", "get", "{}/touch"],
    ):
        environment = dict(os.environ)
        clients._CLIENTS.forget()  # those that have the variables
        done = run(*(each.format(places["s3"]) for each in command), *given)
        os.environ.clear()
        os.environ.update(environment)
        assert done.exit_code == 0, done.exception
        assert command[0] == "meta" or files_of("out")


def test_a_signed_url(places):
    with range_server() as server:
        server.put("/set/a.tar", Path(places["local"], "tar/0.tar").read_bytes())
        url = f"{server.url}/set/a.tar?sig=planted"
        assert run_process("convert", url, "out", "--to", "tar", "--jobs", "1").returncode == 0
        assert files_of("out") == made(f"{places['local']}/tar/0.tar", *CONVERT, "tar", "--jobs", "1")
        server.files.clear()
        done = run_process("convert", url, "out", "--to", "tar", "--jobs", "1")
        assert done.returncode == 1
        assert b"planted" not in done.stderr
