"""Each store by the real client: versions, listings, what is refused, and connections that are lost."""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from az_server import KEY, az_server
from gcp_storage_emulator import server as emulator
from hf_server import REPOSITORY, hf_server
from sftp_server import sftp_server
from stores import STORES, place_in

from touchfs.core.errors import ChangedError, NotFoundError, SourceError, SourceTimeoutError
from touchfs.source.data import DATA
from touchfs.source.remote import ranges
from touchfs.source.remote.blocks import BLOCK
from touchfs.source.remote.clients import resolve

SIZE = 3 * BLOCK + 1234


@pytest.fixture(autouse=True)
def _settings(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("TOUCHFS_REVALIDATE", "0")
    monkeypatch.setattr(ranges, "PAUSE_SECONDS", 0.001)


@pytest.fixture
def sftp(tmp_path, monkeypatch):
    (tmp_path / "root").mkdir()
    with sftp_server(tmp_path / "root", tmp_path / "home", monkeypatch) as server:
        yield server


@pytest.mark.parametrize("store", ["s3", "gs", "az", "hf", "sftp"])
def test_versions_and_listings(store, tmp_path, monkeypatch):
    first, second = random.Random(1).randbytes(SIZE), random.Random(2).randbytes(SIZE)
    with place_in(store, tmp_path, monkeypatch) as (url, put):
        put("a.bin", first)
        put("b.bin", first)
        listed = DATA.list(url)
        assert sorted(entry.name for entry in listed) == ["a.bin", "b.bin"]
        for entry in listed:
            assert entry.status in (None, DATA.stat(f"{url}/{entry.name}"))
        opened, other = DATA.open(f"{url}/a.bin"), DATA.open(f"{url}/b.bin")
        assert opened.read(BLOCK - 10, 20) == first[BLOCK - 10 : BLOCK + 10]
        assert other.read(0, 10) == first[:10]
        time.sleep(0.002)  # the emulator of Google's store numbers versions by the clock
        put("a.bin", second)
        with pytest.raises(ChangedError):
            opened.read(SIZE - 10, 10)
        assert other.read(SIZE - 10, 10) == first[-10:]
        assert DATA.open(f"{url}/a.bin").read(SIZE - 10, 10) == second[-10:]
        with pytest.raises(NotFoundError):
            DATA.stat(f"{url}/none.bin")
        with pytest.raises(NotFoundError):
            DATA.list(f"{url}/none")


@pytest.mark.parametrize("store", [each for each in STORES if each != "hf"])
def test_a_version_is_the_condition_of_a_range(store, tmp_path, monkeypatch):
    """It is not looked at before: the store itself refuses."""
    first, second = random.Random(1).randbytes(SIZE), random.Random(2).randbytes(SIZE)
    monkeypatch.setenv("TOUCHFS_REVALIDATE", "60")
    with place_in(store, tmp_path, monkeypatch) as (url, put):
        put("a.bin", first)
        opened = DATA.open(f"{url}/a.bin")
        opened.read(0, 10)
        time.sleep(0.002)
        put("a.bin", second)
        with pytest.raises(ChangedError):
            opened.read(SIZE - 10, 10)


@pytest.mark.parametrize("status", [403, 429, 503])
def test_answers_of_googles_store(status, tmp_path, monkeypatch):
    """Whoever has no access is told at once; who came at a bad moment comes again."""
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "20")
    data, asked = random.Random(1).randbytes(SIZE), []
    with place_in("gs", tmp_path, monkeypatch) as (url, put):
        put("a.bin", data)
        opened = DATA.open(f"{url}/a.bin")
        opened.read(0, 10)
        for _, methods in emulator.HANDLERS:
            if (given := methods.get("GET")) is not None:

                def fail(request, response, storage, *rest, given=given, **options):
                    asked.append(request.path)
                    if len(asked) > 3 and status != 403:
                        given(request, response, storage, *rest, **options)
                    else:
                        response.status = emulator.HTTPStatus(status)

                monkeypatch.setitem(methods, "GET", fail)
        if status == 403:
            with pytest.raises(SourceError, match="allows no access"):
                opened.read(SIZE - 10, 10)
            assert len(asked) < 4
        else:
            assert opened.read(SIZE - 10, 10) == data[-10:]


@pytest.mark.variant
def test_a_wrong_key_of_azure(monkeypatch):
    with az_server(monkeypatch) as client:
        client.pipe_file("data/a.bin", b"1234")
        right = os.environ["AZURE_STORAGE_CONNECTION_STRING"]
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", right.replace(KEY, "cGxhbnRlZA=="))
        with pytest.raises(SourceError, match="allows no access") as raised:
            DATA.stat("az://data/a.bin")
    assert "cGxhbnRlZA" not in str(raised.value)


def test_a_revision_at_hugging_face(tmp_path, monkeypatch):
    with hf_server(tmp_path, monkeypatch) as hub:
        hub.files["set/a.bin"] = b"1234"
        url = f"hf://datasets/{REPOSITORY}@v1/set"
        assert [entry.name for entry in DATA.list(url)] == ["a.bin"]
        assert DATA.open(f"{url}/a.bin").read(1, 2) == b"23"
        assert any("/resolve/v1/" in path for path in hub.requests)
        assert not any("/main/" in path for path in hub.requests)


def test_an_unknown_host_is_refused(sftp):
    with pytest.raises(SourceError, match="is not in known_hosts"):
        DATA.stat(f"{sftp.url}/a.bin")
    assert sftp.logins == 0
    sftp.know()
    with pytest.raises(NotFoundError):
        DATA.stat(f"{sftp.url}/a.bin")
    assert sftp.logins == 1


def test_no_configuration_accepts_an_unknown_host(sftp):
    (sftp.home / ".ssh/config").write_text("Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile none\n")
    with pytest.raises(SourceError, match="is not in known_hosts"):
        DATA.stat(f"{sftp.url}/a.bin")
    assert sftp.logins == 0


def test_a_host_with_another_key_is_refused(sftp):
    sftp.know(key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEAH7cVHYHHgqGXVp1ybTVFtmZVqEwPqmsBhFmZVzGMx")
    with pytest.raises(SourceError, match="another key than known_hosts says"):
        DATA.stat(f"{sftp.url}/a.bin")
    assert sftp.logins == 0


def test_a_user_without_a_key(sftp):
    sftp.know()
    (sftp.home / ".ssh/id_ed25519").unlink()
    with pytest.raises(SourceError, match="lets you not in"):
        DATA.stat(f"{sftp.url}/a.bin")


def test_the_users_configuration_of_openssh(sftp):
    sftp.know()
    (sftp.root / "a.bin").write_bytes(b"1234")
    (sftp.home / ".ssh/id_ed25519").rename(sftp.home / "key")
    (sftp.home / ".ssh/config").write_text(
        f"Host corpus\n  HostName 127.0.0.1\n  Port {sftp.port}\n  IdentityFile {sftp.home}/key\n"
    )
    assert DATA.open("sftp://corpus/a.bin").read(1, 2) == b"23"
    (sftp.home / "key").unlink()
    with pytest.raises(SourceError, match="/key: no such key: is IdentityFile right"):
        resolve("sftp://corpus/a.bin", {"agent_path": None}).client.info("/a.bin")


@pytest.mark.parametrize("channels_only", [False, True])
def test_a_connection_that_is_lost_comes_again(sftp, channels_only):
    sftp.know()
    data = random.Random(1).randbytes(SIZE)
    (sftp.root / "a.bin").write_bytes(data)
    opened = DATA.open(f"{sftp.url}/a.bin")
    for number in range(4):
        assert opened.read(number * BLOCK - number, 10) == data[number * BLOCK - number :][:10]
        sftp.cut(channels_only=channels_only)
    assert sftp.logins >= 4


def test_many_readers_share_a_connection(sftp):
    sftp.know()
    files = {f"{number}.bin": random.Random(number).randbytes(100_000 + number) for number in range(24)}
    for name, data in files.items():
        (sftp.root / name).write_bytes(data)
    with ThreadPoolExecutor(len(files)) as executor:
        read = executor.map(lambda name: DATA.open(f"{sftp.url}/{name}").read(0, len(files[name])), files)
        assert list(read) == list(files.values())
    assert (sftp.logins, sftp.channels) == (1, 1)


def test_links_at_a_server_are_what_they_lead_to(sftp):
    sftp.know()
    (sftp.root / "set").mkdir()
    (sftp.root / "a.bin").write_bytes(b"1234")
    (sftp.root / "set/file").symlink_to("../a.bin")
    (sftp.root / "set/directory").symlink_to("..")
    (sftp.root / "set/nowhere").symlink_to("none")
    listed = {entry.name: (entry.is_file(), entry.is_dir()) for entry in DATA.list(f"{sftp.url}/set")}
    assert listed == {"file": (True, False), "directory": (False, True)}


def test_whole_files_and_ranges_at_a_server(sftp):
    """As for images that data names."""
    sftp.know()
    data = random.Random(1).randbytes(100_000)
    (sftp.root / "a.bin").write_bytes(data)
    (sftp.root / "empty").write_bytes(b"")
    client, path = resolve(f"{sftp.url}/a.bin")
    assert client.cat_file(path) == data
    assert client.cat_file(path, 10, 20) == data[10:20]
    assert client.cat_file(path, 99_990, 200_000) == data[99_990:]
    assert client.cat_file(path, 200_000, 200_010) == client.cat_file("/empty") == b""


def test_an_s3_endpoint_that_cannot_be_connected_to_is_tried_until_time_is_up(monkeypatch):
    """The error of its client is of a class of its own."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(ranges, "_pauses", lambda deadline: iter([0.0, None]))  # no time for a third attempt
    with pytest.raises(SourceTimeoutError, match="in time; at last: the connection was refused"):
        DATA.open("s3://data/a").open()
