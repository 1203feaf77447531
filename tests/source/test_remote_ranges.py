"""Files of an HTTP server are read in ranges, whatever goes wrong on the way, and never mixed of two versions."""

import os
import pickle
import random
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from range_server import FAULTS, range_server, some_faults
from waiting import wait_until

from touchfs.core.errors import ChangedError, NotFoundError, SourceError, SourceTimeoutError, UsageError
from touchfs.source.data import DATA
from touchfs.source.remote import ranges
from touchfs.source.remote.blocks import BLOCK, SMALL
from touchfs.source.remote.clients import resolve
from touchfs.source.remote.kept import KEPT
from touchfs.source.scratch.write_behind import WRITE_BEHIND
from touchfs.source.store import FileType

# By `make test`, `make test-all` and `make soak`.
FAULTS_WANTED = [60, pytest.param(300, marks=pytest.mark.variant), pytest.param(10_000, marks=pytest.mark.soak)]
SIZE = 7 * BLOCK + 12_345


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.setattr(ranges, "PAUSE_SECONDS", 0.001)
    with range_server() as server:
        yield server


@pytest.fixture(scope="module")
def data():
    return random.Random(1).randbytes(SIZE)


def forget():
    """No piece is in memory or open any more."""
    KEPT.forget()


def test_any_range(server, data):
    file = DATA.open(server.put("/a.bin", data))
    assert file.size == SIZE
    chooser = random.Random(2)
    for _ in range(200):
        start = chooser.randrange(SIZE)
        length = min(chooser.choice((1, 512, BLOCK - 1, BLOCK, 3 * BLOCK)), SIZE - start)
        assert file.read(start, length) == data[start : start + length]
    assert file.read(0, SIZE) == data
    assert file.read(SIZE, 0) == b""


def test_nothing_is_waited_for_on_the_loop(server, data):
    file = DATA.open(server.put("/nowait.bin", data))
    assert file.read_nowait(0, 100) is None
    file.read(0, 100)
    asked = len(server.ranges)
    assert file.read_nowait(50, 1000) == data[50:1050]
    assert file.read_nowait(4 * BLOCK, 10) is None
    assert len(server.ranges) == asked


def test_ranges_only(server, data):
    """A small read costs a small piece, the next one of its block the block; and what lies side by side is one request,
    up to a limit."""
    file = DATA.open(server.put("/few.bin", data))
    file.read(3 * BLOCK + 5, 10)
    file.read(3 * BLOCK + 100, 10)
    assert server.ranges == [("/few.bin", 3 * BLOCK, 3 * BLOCK + SMALL)]
    file.read(4 * BLOCK - 10, 10)
    assert server.ranges[1:] == [("/few.bin", 3 * BLOCK, 4 * BLOCK)]
    file.read(0, SIZE)
    assert sorted(server.ranges[2:]) == [("/few.bin", 0, 3 * BLOCK), ("/few.bin", 4 * BLOCK, SIZE)]


def test_whoever_reads_on_is_read_ahead_for(server, data):
    """What is fetched ahead is fetched once, and another reader of the same file does not disturb that."""
    file = DATA.open(server.put("/on.bin", data))
    for start in range(0, 5 * BLOCK, 65536):
        assert file.read(start, 65536) == data[start : start + 65536]
        assert file.read(SIZE - 5 * 65536, 100) == data[SIZE - 5 * 65536 :][:100]
    wait_until(lambda: max(stop for _, _, stop in server.ranges) >= 7 * BLOCK)
    assert sum(stop - start for _, start, stop in server.ranges) <= SIZE + BLOCK


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_passes(server, data, fault):
    left = [fault, fault, None, None, None]
    server.fault = lambda: left.pop(0) if left else None
    file = DATA.open(server.put(f"/{FAULTS.index(fault)}.bin", data))
    assert file.read(5 * BLOCK - 10, 20) == data[5 * BLOCK - 10 : 5 * BLOCK + 10]


@pytest.mark.parametrize("wanted", FAULTS_WANTED)
def test_many_faults_and_no_wrong_byte(server, data, monkeypatch, wanted):
    """Every second request fails in some way, for several readers at once. No block is kept."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", "1")
    server.fault = some_faults(3, 0.5)

    def read(seed):
        file = DATA.open(server.put(f"/many-{seed}.bin", data))
        chooser, begun = random.Random(seed), len(server.ranges)
        while len(server.ranges) - begun < 2 * wanted:
            forget()
            start = chooser.randrange(SIZE - 1000)
            assert file.read(start, 1000) == data[start : start + 1000]
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(4)))


def test_a_fault_that_stays_ends_in_time(server, data, monkeypatch):
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "0.3")
    server.fault = lambda: "503"
    with pytest.raises(SourceTimeoutError, match="503"):
        DATA.open(server.put("/never.bin", data)).read(0, 10)


@pytest.mark.parametrize(("status", "error"), [("403", SourceError), ("404", NotFoundError)])
def test_a_fault_that_cannot_pass_is_no_time_out(server, data, status, error):
    file = DATA.open(server.put(f"/{status}.bin", data))
    file.open()
    server.fault = lambda: status
    with pytest.raises(error) as caught:
        file.read(0, 10)
    assert not isinstance(caught.value, SourceTimeoutError)


def test_a_server_without_tls_is_no_time_out(server, data):
    url = server.put("/plain.bin", data).replace("http://", "https://")
    with pytest.raises(SourceError, match=r"(?i)ssl") as caught:
        DATA.stat(url)
    assert not isinstance(caught.value, SourceTimeoutError)


def test_an_unknown_host_is_soon_given_up(monkeypatch):
    asked = []

    def unknown(host, *_, **__):
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(ranges, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(SourceError, match="its host is not known") as caught:
        DATA.stat("http://no.such.host/a.bin")
    assert not isinstance(caught.value, SourceTimeoutError)
    assert 1 < len(asked) <= 2 * ranges.UNKNOWN_TRIES  # a HEAD and a GET ask each


def test_a_host_with_an_address_of_version_6(data, tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    with range_server("::1") as server:
        assert "[::1]" in (url := server.put("/d/a.bin", data))
        assert DATA.open(url).read(BLOCK - 10, 20) == data[BLOCK - 10 : BLOCK + 10]
        assert [entry.name for entry in DATA.list(os.path.dirname(url))] == ["a.bin"]


def test_a_server_without_ranges_says_so(server, data):
    server.knows_ranges = False
    with pytest.raises(SourceError, match="sends no ranges"):
        DATA.open(server.put("/whole.bin", data)).read(0, 10)


@pytest.mark.parametrize("revalidate", ["0", "1000"])
def test_no_bytes_of_another_version(server, data, monkeypatch, revalidate):
    """Whether the change is noticed by a look or by the request itself."""
    monkeypatch.setenv("TOUCHFS_REVALIDATE", revalidate)
    url = server.put(f"/new-{revalidate}.bin", data)
    file = DATA.open(url)
    assert file.read(0, 10) == data[:10]
    server.put(f"/new-{revalidate}.bin", data[::-1], '"2"')
    with pytest.raises(ChangedError):
        file.read(5 * BLOCK, 10)
    assert DATA.open(url).read(5 * BLOCK, 10) == data[::-1][5 * BLOCK : 5 * BLOCK + 10]
    with pytest.raises(ChangedError):
        DATA.open(url, file.fingerprint).read(0, 10)


def test_a_version_that_changes_while_it_is_read(server, data):
    url = server.put("/during.bin", data)
    file = DATA.open(url)
    file.read(0, 10)

    def change():
        server.put("/during.bin", bytes(SIZE), '"2"')

    server.fault = change
    try:
        whole = file.read(BLOCK, SIZE - BLOCK)
    except ChangedError:
        return
    assert whole == data[BLOCK:], "all requests, which are sent together, came before the change"


@pytest.mark.parametrize("wanted", FAULTS_WANTED)
def test_versions_are_not_mixed_while_faults_go_on(server, data, monkeypatch, wanted):
    """The file is replaced again and again while several read all of it: each read is of one version, or an error."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", "1")
    versions = {'"0"': data, '"1"': data[::-1]}
    url = server.put("/versions.bin", data, '"0"')
    faults, chooser, changes, seen = some_faults(5, 0.3), random.Random(6), max(0.03, 2 / wanted), []

    def fault():
        if chooser.random() < changes:
            etag = chooser.choice(sorted(versions))
            server.put("/versions.bin", versions[etag], etag)
        return faults()

    def read(_):
        count = 0
        while count < wanted // 20 or not set(seen) >= set(versions):
            count += 1
            assert count < wanted + 200, "one version is never read"
            forget()
            file = DATA.open(url)
            try:
                found = file.read(0, SIZE)
            except ChangedError:
                seen.append(None)
            else:
                seen.append(file.fingerprint.etag)
                assert found == versions[file.fingerprint.etag]

    server.fault = fault
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(4)))


def test_a_weak_etag_is_looked_at_afterwards(server, data):
    url = server.put("/weak.bin", data, 'W/"1"')
    file = DATA.open(url)
    assert file.read(0, 10) == data[:10]

    def change():
        server.put("/weak.bin", bytes(SIZE), 'W/"2"')

    server.fault = change
    with pytest.raises(ChangedError):
        file.read(2 * BLOCK, 10)


def test_blocks_are_shared_by_processes(server, data):
    url = server.put("/shared.bin", data)
    file = DATA.open(url)
    file.read(0, SIZE)
    WRITE_BEHIND.wait()
    asked = len(server.ranges)
    script = "import sys; from touchfs.source.data import DATA; print(DATA.open(sys.argv[1]).read(0, 9_000).hex())"
    done = subprocess.run([sys.executable, "-c", script, url], capture_output=True, check=True, text=True)
    assert bytes.fromhex(done.stdout) == data[:9_000]
    assert len(server.ranges) == asked


def test_the_oldest_blocks_give_way(server, data, tmp_path, monkeypatch):
    """Also those that this process has open."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", "5M")
    kept = []
    for name in ("old", "new"):
        assert DATA.open(server.put(f"/{name}.bin", data)).read(0, SIZE) == data
        WRITE_BEHIND.wait()
        kept.append({path.name: path.stat().st_size for path in (tmp_path / "scratch").glob("*.value")})
    old, new = kept
    assert new.keys() - old.keys()
    assert sum(new.values()) <= 5_000_000


def test_a_damaged_block_is_read_again(server, data, tmp_path):
    file = DATA.open(server.put("/damaged.bin", data))
    file.read(0, 10)
    WRITE_BEHIND.wait()
    (stored,) = (tmp_path / "scratch").glob("*.value")
    stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    forget()
    assert file.read(0, 10) == data[:10]
    assert len(server.ranges) == 2


def test_without_a_scratch_store(server, data, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "file"))
    assert DATA.open(server.put("/nowhere.bin", data)).read(BLOCK, 10) == data[BLOCK : BLOCK + 10]


FORKED = """
import os, sys
from touchfs.source.data import DATA
file = DATA.open(sys.argv[1])
print(file.read(0, 4).hex(), flush=True)
if pid := os.fork():
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(file.read(3_000_000, 4).hex(), status, flush=True)
else:
    print(file.read(6_000_000, 4).hex(), flush=True)
"""


def test_a_client_is_not_used_after_a_fork(server, data):
    """The child has connections of its own, and its end, with all that Python does at an end, harms no others."""
    url = server.put("/fork.bin", data)
    done = subprocess.run([sys.executable, "-c", FORKED, url], capture_output=True, text=True, timeout=60)
    expected = [data[at : at + 4].hex() for at in (0, 6_000_000, 3_000_000)]
    assert done.stdout.split() == [*expected, "0"], done.stderr
    of_child = {address for address, headers in server.requests if headers.get("Range", "").startswith("bytes=5")}
    of_parent = {address for address, headers in server.requests if not headers.get("Range", "").startswith("bytes=5")}
    assert len(of_child) == 1
    assert of_child.isdisjoint(of_parent - of_child)


def test_threads_ask_once(server, data):
    file = DATA.open(server.put("/once.bin", data))
    file.open()
    ready = threading.Barrier(8)

    def read(_):
        ready.wait()
        return file.read(2 * BLOCK, 100)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, range(8))) == {data[2 * BLOCK : 2 * BLOCK + 100]}
    assert len(server.ranges) == 1


def test_threads_that_begin_together_look_once(server, data):
    for number in range(1, 6):
        file = DATA.open(server.put(f"/looked{number}.bin", data))
        ready = threading.Barrier(8)

        def read(_, file=file, ready=ready):
            ready.wait()
            return file.read(0, 100)

        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(read, range(8))) == {data[:100]}
        assert sum("Range" not in headers for _, headers in server.requests) == number


def test_it_is_pickled(server, data):
    file = DATA.open(server.put("/pickled.bin", data))
    file.open()
    assert pickle.loads(pickle.dumps(file)).read(9, 9) == data[9:18]


def test_listing_and_status(server):
    server.put("/set/a.tar", b"abc")
    server.put("/set/b.jsonl", b"{}\n")
    assert sorted(entry.name for entry in DATA.list(f"{server.url}/set/")) == ["a.tar", "b.jsonl"]
    status = DATA.stat(f"{server.url}/set/a.tar")
    assert (status.type, status.fingerprint.size, status.fingerprint.etag) == (FileType.FILE, 3, '"1"')
    with pytest.raises(NotFoundError):
        DATA.stat(f"{server.url}/set/none.tar")
    with DATA.stream(f"{server.url}/set/b.jsonl") as stream:
        assert stream.read() == b"{}\n"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "http://other/x", "a//b", "."])
def test_no_path_out_of_a_directory(server, path):
    with pytest.raises(SourceError, match="leads out"):
        DATA.open_beneath(f"{server.url}/set", path)


def test_secrets_in_a_url_are_refused_and_not_repeated():
    with pytest.raises(UsageError) as error:
        DATA.open("http://me:planted@127.0.0.1:1/x").read(0, 1)
    assert "planted" not in str(error.value)


def test_secrets_in_a_query_are_not_shown(monkeypatch):
    """A server that does not answer is no missing file, either."""
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "0.2")
    with pytest.raises(SourceError) as error:
        DATA.open("http://127.0.0.1:1/x?X-Signature=planted").open()
    assert "planted" not in str(error.value)


PAGE = b"""<?xml version="1.0"?><ListBucketResult><Name>data</Name><Prefix></Prefix><KeyCount>1</KeyCount>
<MaxKeys>1</MaxKeys><IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>
<Contents><Key>endless/a.tar</Key><Size>3</Size><ETag>"1"</ETag><LastModified>2100-01-01T00:00:00Z</LastModified></Contents>
</ListBucketResult>"""


def test_pages_of_a_listing_that_repeat_end_in_time(server, monkeypatch):
    """An S3 server that always says that the same page follows."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    server.put("/data", PAGE)
    resolve("s3://data/endless")  # to make a client takes a moment
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "0.5")
    with pytest.raises(SourceError, match="in time"):
        DATA.list("s3://data/endless")  # which for a moment is not asked again, by the next test either
