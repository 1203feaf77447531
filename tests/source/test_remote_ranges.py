"""Files of an HTTP server are read in ranges, whatever goes wrong on the way, and never mixed of two versions."""

import os
import pickle
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from range_server import FAULTS, range_server, some_faults

from touchfs.errors import ChangedError, NotFoundError, SourceError, UsageError
from touchfs.source.data import DATA
from touchfs.source.remote import blocks, ranges
from touchfs.source.remote.blocks import BLOCK
from touchfs.source.store import FileType

FAULTS_WANTED = int(os.environ.get("TOUCHFS_FAULTS", "300"))
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
    """No block is in memory any more."""
    blocks._RECENT._blocks.clear()


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
    """A small read costs one block; what lies side by side is one request, up to a limit, and all are sent at once."""
    file = DATA.open(server.put("/few.bin", data))
    file.read(3 * BLOCK + 5, 10)
    assert server.ranges == [("/few.bin", 3 * BLOCK, 4 * BLOCK)]
    file.read(0, SIZE)
    assert sorted(server.ranges[1:]) == [("/few.bin", 0, 3 * BLOCK), ("/few.bin", 4 * BLOCK, SIZE)]


def test_whoever_reads_on_is_read_ahead_for(server, data):
    file = DATA.open(server.put("/on.bin", data))
    for start in range(0, SIZE, 65536):
        length = min(65536, SIZE - start)
        assert file.read(start, length) == data[start : start + length]
    assert len(server.ranges) <= 4
    assert sum(stop - start for _, start, stop in server.ranges) == SIZE


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_passes(server, data, fault):
    left = [fault, fault, None, None, None]
    server.fault = lambda: left.pop(0) if left else None
    file = DATA.open(server.put(f"/{FAULTS.index(fault)}.bin", data))
    assert file.read(5 * BLOCK - 10, 20) == data[5 * BLOCK - 10 : 5 * BLOCK + 10]


def test_many_faults_and_no_wrong_byte(server, data, monkeypatch):
    """Every second request fails in some way, for several readers at once. No block is kept."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", "1")
    server.fault = some_faults(3, 0.5)

    def read(seed):
        file = DATA.open(server.put(f"/many-{seed}.bin", data))
        chooser, begun = random.Random(seed), len(server.ranges)
        while len(server.ranges) - begun < 2 * FAULTS_WANTED:
            forget()
            start = chooser.randrange(SIZE - 1000)
            assert file.read(start, 1000) == data[start : start + 1000]
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(4)))


def test_a_fault_that_stays_ends_in_time(server, data, monkeypatch):
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "0.3")
    server.fault = lambda: "503"
    with pytest.raises(SourceError):
        DATA.open(server.put("/never.bin", data)).read(0, 10)


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
    with pytest.raises(ChangedError):
        file.read(BLOCK, SIZE - BLOCK)


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
    blocks.BEHIND.wait()
    asked = len(server.ranges)
    script = "import sys; from touchfs.source.data import DATA; print(DATA.open(sys.argv[1]).read(0, 9_000).hex())"
    done = subprocess.run([sys.executable, "-c", script, url], capture_output=True, check=True, text=True)
    assert bytes.fromhex(done.stdout) == data[:9_000]
    assert len(server.ranges) == asked


def test_a_damaged_block_is_read_again(server, data, tmp_path):
    file = DATA.open(server.put("/damaged.bin", data))
    file.read(0, 10)
    blocks.BEHIND.wait()
    (stored,) = (tmp_path / "scratch").glob("*.value")
    stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    forget()
    assert file.read(BLOCK - 10, 10) == data[BLOCK - 10 : BLOCK]
    assert len(server.ranges) == 2


def test_without_a_scratch_store(server, data, tmp_path):
    (tmp_path / "scratch").write_text("in the way")
    assert DATA.open(server.put("/nowhere.bin", data)).read(BLOCK, 10) == data[BLOCK : BLOCK + 10]


def test_a_fork_reads_too(server, data):
    file = DATA.open(server.put("/fork.bin", data))
    file.read(0, 10)
    pid = os.fork()
    if pid == 0:
        os._exit(file.read(6 * BLOCK, 10) != data[6 * BLOCK : 6 * BLOCK + 10])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


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
