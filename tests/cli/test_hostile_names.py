"""Names of data in all that commands, mounts and servers write: none breaks a line, and none is a command."""

import json
import os
import re
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pyarrow
import pyarrow.parquet
import pytest
from command import INSTALLED, TOUCHFS, in_one_process
from hostile import EVIL, NAMES, TEXTS, lines_of, tame
from tars import write_tar
from variants import with_variants
from waiting import wait_until

from touchfs.catalog.table_builder import encode_key
from touchfs.cli.main import COMMANDS
from touchfs.format.wav import build_header

# What a command writes about the data: `{d}` is a directory of tars and JSONL, `{t}` of a table, `{m}` a mount, `{n}` a
# name of a file that is not there, `{o}` a new path.
CALLS = {
    "cat": ["{d}:shards/{n}"],
    "convert": ["{d} {o} --to tar --jobs 1"],
    "cp": ["-r {d}:shards {o}", "{d}:{n} {o}"],
    "demo": ["{o}", "{d}"],
    "doctor": ["{m}", "{d}"],
    "image": ["{d} -o {o}", "{t} -o {o}", "{d} -o {d} --force", "{d} -o {o} --check"],
    "index": [
        "{d} --force --jobs 1 --progress plain",
        "jsonl {d}/{n}",
        "webdataset {d}/{n} --jobs 1",
        "tar {d}/{e}.tar",
    ],
    "info": ["{d}", "{t}", "{t} --json", "{n}"],
    "interleave": ["{d} {o}", "{t} {o} --where {n}"],
    "iterate": ["{d}", "{d} --output json", "{d} --select {n}", "{t} --where {n}"],
    "iterator": ["create {d} one", "next {d} one", "list {d}", "peek {m} {n}"],
    "ls": ["-l {d}:shards", "{d}:by-key", "{d}:shards/{n}", "{t}:by-label", "{t}:columns"],
    "manifest": ["{d} {o} --kind kaldi", "{d} --kind nemo"],
    "meta": ["get {d}", "put {d}"],
    "mount": ["{d} {d}/{n}", "{n} {o}", "{d} {m}"],
    "pack": ["touchnet {d}/keys.jsonl {o} --jobs 1", "touchnet {n} {o}"],
    "prefetch": ["{d}", "{n}"],
    "reload": ["{m}", "{n}"],
    "serve": ["{d} --http {n}", "{n}"],
    "show": ["{d}:shards", "{t}", "{d}:{n}", "{d} -o {o}", "{d} -o {o}.html"],
    "stat": ["{d}:shards", "{d}:shards/{n}", "{m}"],
    "status": ["--stats {m}", "", "{m}", "{m} --json", "{n}"],
    "storage": ["ls", "ls --json", "prune --keep 0 --dry-run"],
    "umount": ["{d}", "{n}"],
    "verify": ["{d} --write --jobs 1", "{d} --jobs 1", "{t} --jobs 1 --json"],
}
# Every fourth name is that of a tar, of which each sample has a name: they are quoted alike.
TARS = NAMES[::4]
# Commands that write nothing about data.
WAV = build_header(200, 8000) + bytes(200)
OWN = {"setup"}


def test_each_command_is_called():
    assert CALLS.keys() | OWN == COMMANDS.keys()


class World:
    """The same data, with names as they are or with tame ones."""

    def __init__(self, place, name):
        self.place, self.name = place, name
        self.data, self.table, self.point = (place / name(EVIL) / each for each in ("data", "table", "mnt"))
        self.environment = os.environ | {f"XDG_{each}_HOME": str(place / each) for each in ("CACHE", "STATE")}
        for first, tar in enumerate(map(name, TARS)):
            members = {}
            for each in map(name, NAMES[4 * first : 4 * first + 4]):
                labels = {"text": each, "speaker": each, "language": each}
                members |= {f"{each}.wav": WAV, f"{each}.json": json.dumps(labels).encode(), f"{each}.{each}": b"other"}
            write_tar(self.data / f"{tar}.tar", members)
        whole = (self.data / f"{name(TARS[0])}.tar").read_bytes()
        (self.data / f"{name(EVIL)}.tar").write_bytes(whole[:512] + b"damaged" * 1000)
        records = [{"id": name(text), "text": name(text), "speaker": name(text), "audio": name(text)} for text in TEXTS]
        lines = [json.dumps(record) for record in records]
        (self.data / "keys.jsonl").write_text("\n".join([*lines, '{"id": "damaged"', ""]))
        self.table.mkdir()
        names = [name(text) for text in TEXTS if text.isprintable() or not any("\ud800" <= c <= "\udfff" for c in text)]
        label = {"names": [name(text) for text in TEXTS], "_type": "ClassLabel"}
        features = {"label": label} | {each: {"dtype": "string", "_type": "Value"} for each in names}
        columns = {"label": pyarrow.array(range(len(TEXTS)))}
        columns |= {each: pyarrow.array([each] * len(TEXTS)) for each in names}
        table = pyarrow.table(columns).replace_schema_metadata(
            {"huggingface": json.dumps({"info": {"features": features}})}
        )
        with open(self.table / "table.parquet", "wb") as file:
            pyarrow.parquet.write_table(table, file)
        self.count = 0

    def arguments(self, command, call):
        self.count += 1
        places = {
            "d": self.data, "t": self.table, "m": self.point, "n": f"no{self.name(EVIL)}", "e": self.name(TARS[1]),
            "o": self.place / f"{self.name(EVIL)}{self.count}",
        }  # fmt: skip
        return in_one_process(command, *(word.format(**places) for word in call.split()))

    def run(self, *arguments, program=TOUCHFS, **variables):
        return subprocess.run(
            [program, *arguments],
            cwd=self.place,
            env=self.environment | variables,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=120,
        )


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """Data with hostile names and with tame ones, both mounted."""
    made = [World(tmp_path_factory.mktemp("names"), name) for name in (str, tame)]
    for world in made:
        done = world.run("mount", world.data, world.point, "--workers", "1", "--log-file", world.place / "log")
        assert done.returncode == 0, done
        lines_of(done.stdout + done.stderr)
    yield made
    for world in made:
        world.run("umount", world.point)
        lines_of((world.place / "log").read_bytes(), "log")


def counts(done):
    shown = lines_of(done.stdout, done.args)
    if done.args[1] == "storage":  # where paths are not UTF-8, there is no list of extents in the scratch store
        shown = [line for line in shown if " scratch " not in line and '"scratch"' not in line]
    return done.returncode, len(shown), len(lines_of(done.stderr, done.args))


@pytest.mark.parametrize(("command", "call"), [(command, call) for command, calls in CALLS.items() for call in calls])
def test_commands(worlds, command, call):
    evil, plain = (world.run(*world.arguments(command, call)) for world in worlds)
    if (command, call) == ("status", ""):  # of all mounts of this machine, which other tests change meanwhile
        wait_until(lambda: counts(worlds[0].run("status")) == counts(worlds[1].run("status")), 60)
    else:
        assert counts(evil) == counts(plain), (evil.stdout.decode(), plain.stdout.decode())


def test_names_of_a_mount(worlds):
    """Each name is UTF-8 and printable, and each list and report has its lines."""
    lengths = []
    for world in worlds:
        found = {}
        for directory, below, files in os.walk(os.fsencode(world.point)):
            for name in below + files:
                lines_of(name.replace(b"\n", b"\x0b"), directory)
            for name in files:
                if (b"/manifests" in directory or name == b"ERROR.txt") and not name.endswith((b".arrow", b".parquet")):
                    found.setdefault(name, []).append(length_of(os.path.join(directory, name)))
        lengths.append({name: sorted(counts) for name, counts in found.items()})
    refused = lengths[1] | {b"filelist.txt": [0], b"wav.scp": [0]}  # their paths would begin with the mount point
    assert lengths[0] == refused
    assert len(refused) > 5


def length_of(path):
    """The lines of a file; 0 if it cannot be read. Texts of utterances keep their directions."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return len(lines_of(re.sub("[\u202a-\u202e\u2066-\u2069]", "", file.read()).encode(), path))
    except OSError:
        return 0


def unquoted(line):
    """The name that a line is about."""
    short = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
    return re.sub(r"\\(u[0-9a-f]{4}|[nrt\\])", lambda found: short.get(found[1]) or chr(int(found[1][1:], 16)), line)


def test_control_files(worlds):
    lengths = []
    for world in worlds:
        own = world.point / ".touchfs"
        found = []
        for output in ("key", "json", "relpath"):
            iterator = own / "iterators" / output
            iterator.mkdir()
            (iterator / "spec").write_text(json.dumps({"output": output, "batch": 200}))
            with pytest.raises(OSError, match="Invalid argument"):
                (iterator / "spec").write_text(
                    json.dumps({"where": f"{world.name(EVIL)} = 1", "select": world.name(EVIL)})
                )
            (iterator / "spec").write_text(json.dumps({"output": output, "batch": 200}))
        with pytest.raises(OSError):
            (world.point / "shards" / "keys" / "nothing").read_bytes()
        for path in sorted(own.rglob("*")):
            if path.is_file() and path.name != "stats" and path.parent.name not in ("one", "keys"):
                count = len(lines_of(path.read_bytes(), path))
                found.append((str(path.relative_to(own)), count if path.name != "errors" else 0))
        assert json.loads((own / "info").read_text())["mounted_at"] == str(world.point)
        lengths.append(found)
    assert lengths[0] == lengths[1]


def test_keys_are_quoted_so_that_they_can_be_told_apart(worlds):
    done = worlds[0].run("iterator", "create", worlds[0].data, "keys", "--spec", '{"output": "key", "batch": 200}')
    done = worlds[0].run("iterator", "next", worlds[0].data, "keys")
    found = {encode_key(unquoted(line)) for line in lines_of(done.stdout)[:-1]}
    assert found == {*map(encode_key, [*NAMES, *TEXTS]), b"00000044"}  # the last one is of the damaged line


def test_a_server(worlds):
    answers = []
    for world in worlds:
        command = [TOUCHFS, "serve", world.data, "--http", "127.0.0.1:0"]
        with subprocess.Popen(
            command, env=world.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            line = process.stdout.readline()
            url = lines_of(line)[0].rsplit(" ", 1)[1]
            found = [len(lines_of(line))]
            missing = quote(os.fsencode(f"shards/{world.name(EVIL)}/no"))
            for path in (
                "?list",
                "shards/",
                "shards/keys/",
                "by-key/",
                "manifests/",
                missing,
                f"{missing}?\u202e".encode().hex(),
            ):
                for method, accept in (("GET", "text/html"), ("GET", "application/json"), ("PROPFIND", "*")):
                    headers = {"Accept": accept, "Depth": "1"}
                    request = urllib.request.Request(url + path, method=method, headers=headers)
                    try:
                        answer = urllib.request.urlopen(request, timeout=60)
                    except urllib.error.HTTPError as error:
                        answer = error
                    lines_of(str(answer.headers).encode("latin-1"))
                    found.append((answer.status, len(lines_of(answer.read()))))
            for path in ("", "-/samples", "-/errors"):  # whose lines depend on how far it has counted
                lines_of(
                    urllib.request.urlopen(urllib.request.Request(url + path, headers={"Accept": "text/html"})).read()
                )
            process.terminate()
            found.append(len(lines_of(process.stderr.read())))
        answers.append(found)
    assert answers[0] == answers[1]


class _HostileServer(BaseHTTPRequestHandler):
    """Lists hostile names, and gives hostile reasons for errors."""

    def do_GET(self):  # the name that http.server calls
        if self.path == "/":
            links = "".join(f'<a href="{quote(os.fsencode(name))}.tar">{name!r}</a>' for name in TARS)
            body = f"<html><body>{links}</body></html>".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            self.send_response(403, "no \x1b[2J\x9b31m\x85")
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"\x1b[2J\n")

    do_HEAD = do_GET

    def log_message(self, format, *arguments): ...


def test_what_a_web_server_says(worlds):
    with ThreadingHTTPServer(("127.0.0.1", 0), _HostileServer) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        for call in (["info", url], ["ls", f"{url}x.tar"], ["iterate", url]):
            done = worlds[0].run(*call)
            assert done.returncode == 1
            assert 0 < len(lines_of(done.stdout + done.stderr, call)) < 2 * len(TARS)
        server.shutdown()


def test_what_a_service_manager_gets(worlds, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        worlds[0].run("index", worlds[0].data, "--force", "--jobs", "1", NOTIFY_SOCKET=str(tmp_path / "notify"))
        manager.setblocking(False)
        message = lines_of(manager.recv(65536))
    assert [line.partition("=")[0] for line in message] == ["EXTEND_TIMEOUT_USEC", "STATUS"]


LOCALES = {"C": None, "C.UTF-8": None, "en_US": "ISO-8859-1", "ja_JP": "EUC-JP"}


@pytest.mark.parametrize("locale", with_variants(LOCALES, lambda locale: locale in ("C", "ja_JP")))
def test_locales(worlds, tmp_path, locale):
    variables = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    if (charset := LOCALES[locale]) is not None:
        made = tmp_path / locale
        done = subprocess.run(["localedef", "-i", locale, "-f", charset, made], capture_output=True, check=False)
        assert made.exists(), done
        variables |= {"LOCPATH": str(tmp_path)}
    evil, plain = worlds
    for command, call in (("info", "{d}"), ("ls", "{d}:shards/{n}")):
        shown = evil.run(*evil.arguments(command, call), program=INSTALLED, **variables)
        expected = plain.run(*plain.arguments(command, call))
        assert counts(shown) == counts(expected), (shown.stdout.decode(), expected.stdout.decode())
