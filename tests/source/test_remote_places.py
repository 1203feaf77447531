"""What data of another store may name, and what the options of stores may hold."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from command import TOUCHFS
from range_server import range_server
from tars import write_tar
from touchnet import write_speech

import touchfs
from touchfs.cli.main import group
from touchfs.cli.remote_options import remote_options
from touchfs.core.errors import LocationError, MissingExtraError, SourceError, UsageError
from touchfs.core.location import Location, keep_query, with_slash
from touchfs.core.urls import climbs, shown, without_secrets
from touchfs.indexing import open_dataset
from touchfs.indexing.place import index_directory
from touchfs.registry.find import find_shards
from touchfs.source.data import DATA
from touchfs.source.remote.client_errors import reason_of
from touchfs.source.remote.clients import resolve, with_query
from touchfs.source.remote.storage_options import StorageOptions, parse_option
from touchfs.store.place import state_path

ELSEWHERE = (
    "http://169.254.169.254/latest/meta-data",
    "https://other.example/shard",
    "s3://other/shard",
    "file:///etc",
    "local:///etc",
    "memory://shard",
    "simplecache::http://other.example/shard",
)


@pytest.fixture(autouse=True)
def _own(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("TOUCHFS_URL_QUERIES", "{}")
    monkeypatch.setenv("TOUCHFS_URL_SLASHES", "{}")


@pytest.mark.parametrize("place", ELSEWHERE)
def test_no_list_names_another_place(server, tmp_path, place):
    """Neither a list of another store, nor one of this machine, unless that is allowed."""
    server.put("/set/data.list", f"{place} audio+metainfo\n".encode())
    with pytest.raises(LocationError, match=r"/set/data\.list: line 1: "):
        find_shards(f"{server.url}/set/")
    assert server.ranges == [("/set/data.list", 0, len(server.files["/set/data.list"][0]))]
    if place.startswith(("http", "s3", "memory")):
        (tmp_path / "data.list").write_text(f"\n{place} audio+metainfo\n")
        with pytest.raises(LocationError, match=r"/data.list: line 2: .*--allow-location"):
            find_shards(str(tmp_path))


def test_a_list_of_another_store_names_no_file_of_this_machine(server, tmp_path):
    secret = write_speech(tmp_path / "secret", [({"key": "a"}, b"1234")])
    steps = os.path.relpath(secret, "/")
    lines = f"{secret} audio+metainfo\n../../{steps} audio+metainfo\nhere/shard audio+metainfo\n"
    server.put("/set/data.list", lines.encode())
    server.put("/set/here/shard/audio.bin", b"1234")
    base = f"{server.url}/set"
    assert find_shards(f"{base}/") == [f"{base}/secret", f"{base}/secret", f"{base}/here/shard"]


def test_a_list_names_what_is_allowed(server, tmp_path):
    server.put("/set/shard/audio.bin", b"1234")
    (tmp_path / "data.list").write_text(f"{server.url}/set/shard audio+metainfo\n")
    assert find_shards(str(tmp_path), locations=[f"{server.url}/set"]) == [f"{server.url}/set/shard"]
    with pytest.raises(LocationError):
        find_shards(str(tmp_path), locations=[f"{server.url}/se"])


def test_a_page_of_links_names_only_what_is_below_it(server):
    server.put("/set/a.tar", b"")
    server.put("/other/b.tar", b"")
    server.files["/page/"] = (
        f'<a href="/other/b.tar">x</a><a href="{server.url}/other/b.tar">x</a><a href="../other/b.tar">x</a>'
        '<a href="http://169.254.169.254/c.tar">x</a><a href="?C=M">x</a><a href="own.tar">x</a>'.encode(),
        '"1"',
    )
    server.types["/page/"] = "text/html"
    assert [entry.name for entry in DATA.list(f"{server.url}/page/")] == ["own.tar"]


def test_a_file_without_etag_and_time_is_not_kept(server, monkeypatch):
    """Another version of the same size would look the same: see `--assume-immutable`."""
    url = server.put("/plain.bin", b"a" * 100, "")
    assert DATA.open(url).read(0, 100) == b"a" * 100
    server.put("/plain.bin", b"b" * 100, "")
    assert DATA.open(url).read(0, 100) == b"b" * 100
    monkeypatch.setenv("TOUCHFS_ASSUME_IMMUTABLE", "1")
    assert DATA.open(url).read(0, 100) == b"b" * 100
    server.put("/plain.bin", b"c" * 100, "")
    assert DATA.open(url).read(0, 100) == b"b" * 100


def test_a_query_is_kept_apart(server):
    signed = "https://host/a.tar?X-Signature=planted%3A1"
    assert keep_query(f"{signed}:shards/a/x.txt") == "https://host/a.tar:shards/a/x.txt"
    assert Location.of(signed).absolute.path == "https://host/a.tar"
    assert with_query("https://host/a.tar") == signed
    assert with_query("https://host/b.tar") == "https://host/b.tar"
    assert keep_query("s3://bucket/what?") == "s3://bucket/what?"
    assert keep_query("local?name") == "local?name"


def test_a_slash_at_the_end_makes_no_other_dataset(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    server.put("/set/a.tar", write_tar(tmp_path / "a.tar", {"k.txt": b"x"}).read_bytes())
    url = f"{server.url}/set"
    first = open_dataset(url)
    index = sorted(os.listdir(index_directory()))
    second = open_dataset(f"{url}//")
    assert (first.source, second.source) == (url, url)
    assert [shard.catalog for shard in first.shards] == [shard.catalog for shard in second.shards]
    assert sorted(os.listdir(index_directory())) == index
    assert state_path(url, ".state") == state_path(f"{url}/", ".state")


def test_a_slash_at_the_end_is_sent(server, tmp_path):
    """Without it, some servers redirect to a host that only they can reach, or know no such file."""
    server.put("/set/a.tar", write_tar(tmp_path / "a.tar", {"k.txt": b"x"}).read_bytes())
    server.redirects = {"/set": "http://127.0.0.2/set/"}
    with pytest.raises(LocationError, match="redirect"):
        open_dataset(f"{server.url}/set")
    assert [shard.name for shard in open_dataset(f"{server.url}/set/").shards] == ["a"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a//", "s3://bucket/a"),
        ("https://host/a/?sig=1", "https://host/a"),
        ("HTTPS://host/a", "https://host/a"),
        ("memory:///", "memory:///"),
    ],
)
def test_the_absolute_form_of_a_url(url, expected):
    assert Location.of(url).absolute.path == expected
    assert Location.of(Location.of(url).absolute.path).absolute.path == expected
    assert with_query(with_slash(Location.of("HTTPS://host/b/?sig=1").absolute.path)) == "https://host/b/?sig=1"


@pytest.mark.parametrize("variable", ["TOUCHFS_URL_QUERIES", "TOUCHFS_URL_SLASHES"])
@pytest.mark.parametrize(
    "planted", ["zz", *(pytest.param(each, marks=pytest.mark.variant) for each in ("[]", "3", '{"https://host/a": 3}'))]
)
def test_what_the_environment_keeps_may_be_nonsense(variable, planted):
    done = subprocess.run(
        [TOUCHFS, "ls", "https://host/a/?sig=1"],
        env=os.environ | {variable: planted},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"touchfs: ${variable} " in done.stderr


@pytest.mark.parametrize(
    "url",
    ["http://", "http:///x", "https://host:abc/x", "HTTP://host:99999/x", "http://[::1/x", "sftp:///x", "sftp://h:0"],
)
def test_a_url_without_host_or_with_a_wrong_port_is_refused(url):
    with pytest.raises(UsageError, match=r"no host, or no number as its port: write \w+://HOST/PATH"):
        DATA.stat(url)
    assert Location.of("http://[::1]:8080/x").absolute.path == "http://[::1]:8080/x"


def test_a_scheme_of_capital_letters_is_the_same(server):
    server.put("/a.bin", b"abc")
    assert DATA.open(server.url.replace("http", "HTTP") + "/a.bin").read(0, 3) == b"abc"


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/a.bin", "s3://bucket/a.bin"])
def test_an_option_that_the_client_does_not_have_is_named(server, url, monkeypatch):
    monkeypatch.setenv("TOUCHFS_STORAGE_OPTIONS", '{"no_such_option": 1}')
    server.put("/a.bin", b"abc")
    with pytest.raises(SourceError, match="its client has no option 'no_such_option': see --storage-option"):
        DATA.stat(url.format(port=server.server_address[1]))


def test_azure_without_credentials_is_one_line_at_once(monkeypatch, caplog):
    """Its client would try again for longer than we wait."""
    for variable in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_CLIENT_ID"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "nobody")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")  # to ask the network takes longer
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "10")
    with pytest.raises(SourceError, match=r"^az://data/a.tar: the store allows no access: are its credentials set\?$"):
        DATA.stat("az://data/a.tar")
    assert [record.name for record in caplog.records if record.name.startswith("azure")] == []


def test_known_hosts_that_are_missing_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_STORAGE_OPTIONS", json.dumps({"known_hosts": str(tmp_path / "none")}))
    with pytest.raises(SourceError, match="/none: these known_hosts cannot be read: No such file"):
        DATA.stat("sftp://127.0.0.1/a.tar")


def test_a_request_does_not_wait_for_the_disk(monkeypatch):
    resolve("memory://a/b")
    monkeypatch.setattr(os.path, "lexists", lambda path: pytest.fail("asked"))
    resolve("memory://a/b")


def test_errors_name_no_query():
    error = OSError(
        "404, message='Not Found', url='https://me:planted@host/a?sig=planted', x=http://h/b?planted#planted"
    )
    assert "planted" not in reason_of(error)
    assert shown("https://me:planted@host/a?planted") == "https://host/a"
    for error in (SourceError("gone", path="s3://me:planted@b/a?planted"), SourceError("gone").at("s3://planted@b/a")):
        assert str(error) == "s3://b/a: gone"


@pytest.mark.parametrize(
    "option",
    [
        *(f"{name}=planted" for name in ("key", "secret", "aws_secret_access_key", "session_token", "PASSWORD")),
        *(f"{name}=planted" for name in ("sas_token", "connection_string", "passphrase", "pwd", "pass", "smb_pass")),
        *(f"{name}=planted" for name in ("bearer", "bearer_value", "auth", "proxy_auth", "authorization")),
        "proxy=http://me:planted@host",
        "proxy=me:planted@host:3128",
        "endpoint_url=HTTP://planted@host",
        "endpoint_url=http://me:pl/anted@host/",
        "account_url=https://host/?sv=1&sig=planted",
    ],
)
def test_an_option_is_no_secret(option):
    with pytest.raises(UsageError, match="--options-file") as error:
        parse_option(option)
    assert "planted" not in str(error.value)
    assert option.partition("=")[0] in str(error.value)


@pytest.mark.parametrize(
    "option",
    ["author=me", "passive=true", "endpoint_url=http://host:9000/a", "user_agent=me@host", "project=a:b", "anon=true"],
)
def test_an_innocent_option_is_none(option):
    assert parse_option(option)[0] == option.partition("=")[0]


def test_options_come_to_the_client(tmp_path, monkeypatch):
    for variable in (
        "TOUCHFS_STORAGE_OPTIONS",
        "TOUCHFS_OPTIONS_FILE",
        "TOUCHFS_STORE_TIMEOUT",
        "TOUCHFS_REVALIDATE",
        "TOUCHFS_REQUESTS",
    ):
        monkeypatch.setenv(variable, "{}")
        monkeypatch.delenv(variable)
    file = tmp_path / "options.json"
    file.write_text(json.dumps({"s3": {"secret": "planted", "anon": False}}))
    file.chmod(0o600)
    given = {
        "storage_options": ("anon=true", "retries=3"),
        "options_file": str(file),
        "timeout": 7.0,
        "revalidate": 0.0,
    }
    assert remote_options(lambda timeout: timeout)(**given, assume_immutable=False, requests=5) == 7.0
    found = StorageOptions.configured()
    assert found.of("s3") == {"secret": "planted", "anon": True, "retries": 3}
    assert found.of("http") == {"anon": True, "retries": 3}
    assert (found.timeout_seconds, found.revalidate_seconds, found.requests) == (7.0, 0.0, 5)
    assert "planted" not in repr(found)


@pytest.mark.parametrize(("url", "extra"), [("gs://bucket/x", "gs"), ("abfs://c@d/x", "az"), ("sftp://host/x", "sftp")])
def test_a_client_that_is_not_installed(url, extra, monkeypatch):
    hidden = ("gcsfs", "adlfs", "asyncssh")
    for module in {*hidden, *(name for name in sys.modules if name.partition(".")[0] in hidden)}:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "touchfs.source.remote.protocols.sftp_client", raising=False)
    with pytest.raises(MissingExtraError, match=rf"touchfs-shards\[{extra}\]"):
        find_shards(url.replace("c@d", "c"))


def test_an_options_file_of_others_is_refused(tmp_path):
    file = tmp_path / "options.json"
    file.write_text("{}")
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        StorageOptions(file=str(file)).of("s3")


def test_an_index_is_not_written_to_another_store(server, tmp_path):
    data = write_tar(tmp_path / "a.tar", {"a.txt": b"1"}).read_bytes()
    url = server.put("/set/a.tar", data)
    with pytest.raises(UsageError, match="in-place"):
        open_dataset(url, in_place=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GET http://h/a.tar?sig=S failed", "GET http://h/a.tar failed"),
        ("no https://u:S@h/x and 's3://b/k?token=S'", "no https://h/x and 's3://b/k'"),
        ("url: /tokeninfo?access_token=S (Caused by", "url: /tokeninfo?… (Caused by"),
        ("is it there? a=1", "is it there? a=1"),
    ],
)
def test_messages_of_libraries_hold_no_secrets(text, expected):
    assert without_secrets(text) == expected


def test_a_client_that_fails_says_no_secret(monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("POST /token?assertion=planted: refused")

    monkeypatch.setattr("fsspec.get_filesystem_class", fail)
    with pytest.raises(SourceError, match=r"no client for it: POST /token\?… refused") as failed:
        DATA.stat("memory://never-made-before/x")
    assert "planted" not in str(failed.value)


@pytest.mark.parametrize(
    "line", ["%2e%2e/other/shard", "..", "a/..", "%2E%2E", "a/%2e%2e/%2e%2e/other/shard", "..%2fother/shard"]
)
def test_a_list_of_another_store_does_not_lead_out_of_its_directory(line):
    with range_server() as server:
        server.put("/other/shard/audio.bin", b"1234")
        server.put("/set/data.list", f"{line} audio+metainfo\n".encode())
        try:
            found = find_shards(f"{server.url}/set/")
        except LocationError:
            found = []
        assert all(path.startswith(f"{server.url}/set/") and not climbs(path) for path in found)
        assert not any("other" in path for path, _, _ in server.ranges)


def test_a_page_of_links_does_not_lead_out_of_its_directory():
    with range_server() as server:
        server.put("/b.tar", b"")
        server.put("/set/", b'<a href="%2e%2e/">up</a><a href="..%2fb.tar">up</a><a href="a.tar">a</a>')
        server.types["/set/"] = "text/html"
        server.put("/set/a.tar", b"")
        assert [entry.name for entry in DATA.list(f"{server.url}/set/")] == ["a.tar"]


@pytest.mark.parametrize(
    ("path", "expected"), [("a/b", False), ("a..b", False), ("..", True), ("a/%2E./b", True), ("a\\..", True)]
)
def test_what_climbs(path, expected):
    assert climbs(path) is expected


@pytest.mark.parametrize(
    "url",
    [
        "zip://a.tar::zip://inner.zip::https://host/a.zip?sig=planted",
        "zip://inner.tar::simplecache::s3://bucket/a.zip",
        "tar://inner.tar::memory://b/a.tar",
        "zip:///home/a.zip",
        "simplecache::https://host/a.tar?sig=planted",
        "s3://bucket/a.tar::https://host/a.zip",
    ],
)
def test_other_chains_are_refused(url, tmp_path, monkeypatch):
    """By `touchfs.open`, the commands that open a dataset, and those that read shards without an index."""
    monkeypatch.chdir(tmp_path)
    commands = ["ls {}", "cat {}", "info {}", "convert {} out --to tar --jobs 1", "convert {} out --to arrow"]
    commands += ["meta get {}", "interleave {} out --jobs 1", "pack tar {} out --jobs 1"]
    for command in commands:
        error = CliRunner().invoke(group, command.format(url).split()).exception
        assert isinstance(error, UsageError), (command, error)
        assert "chain" in str(error)
        assert "planted" not in str(error)
    assert os.listdir() == []
    with pytest.raises(UsageError, match="unpack the archive"):
        touchfs.open(url)


def test_colons_in_names_are_no_chain(server, tmp_path):
    server.put("/set/a::b.tar", write_tar(tmp_path / "a.tar", {"k.txt": b"x"}).read_bytes())
    assert [sample.key for sample in touchfs.open(f"{server.url}/set/a::b.tar")] == ["k"]
